"""The load of logged batches, for controllers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VirtualNodeLoad:
    """The task of a virtual node in one batch: its running time in seconds, and the keys in its stores.

    `rows` is None if the query does not track its rows.
    """

    virtual_node: str
    desired_worker: str
    task_s: float
    rows: int | None


@dataclass(frozen=True, slots=True)
class SourceLag:
    """How far a query was behind a source when a batch began.

    `source`: its name, from Spark's description. `unit`: "offsets", or the name of a metric of the source. `behind`:
    left to read after the batch. `read`: read by the batch; 0: unknown.
    """

    source: str
    unit: str
    behind: float
    read: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """One logged batch of a query.

    `input_rows` and `batch_s` (seconds) are 0 if the driver does not report them. `trigger_s`: the trigger interval in
    seconds; 0: none. `workers`: how many may receive virtual nodes. `skipped`: earlier batches that this program has
    missed, because it reads too slowly. `lags`: of sources that report any.
    """

    job: str
    name: str
    run_id: str
    batch_id: int
    configuration_epoch: int
    input_rows: int
    batch_s: float
    trigger_s: float
    virtual_nodes: tuple[VirtualNodeLoad, ...]
    workers: int
    skipped: int
    lags: tuple[SourceLag, ...] = ()

    @property
    def imbalance(self) -> float | None:
        """The task time of the busiest worker over the mean of all workers; None: no task took any time."""
        busy = dict[str, float]()
        for node in self.virtual_nodes:
            busy[node.desired_worker] = busy.get(node.desired_worker, 0.0) + node.task_s
        total = sum(busy.values())
        return max(busy.values()) * max(self.workers, len(busy)) / total if total > 0 else None
