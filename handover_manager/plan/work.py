"""Rows and task times of virtual nodes, as the driver reports them with a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from rhino_core.errors import PreconditionError
from rhino_core.ids import VirtualNode

KEPT = 8  # batches; one of them may have loaded state, or waited on a busy machine


class Work(NamedTuple):
    """One virtual node in one batch: keys in its stores, and the running time of its task in seconds.

    `rows` is None if the query does not track its rows.
    """

    rows: int | None
    task_s: float


class WorkFigures:
    """The newest KEPT reports of each virtual node of a job. Not journalled: the next batch brings new ones."""

    def __init__(self) -> None:
        self._kept: dict[VirtualNode, deque[Work]] = {}

    def clear(self) -> None:
        self._kept.clear()

    def add(self, work: Mapping[VirtualNode, Work]) -> None:
        for node, one in work.items():
            self._kept.setdefault(node, deque(maxlen=KEPT)).append(one)

    def usual(self) -> dict[VirtualNode, Work]:
        """The newest rows and the median task time of each reported virtual node."""
        return {
            node: Work(kept[-1].rows, median(work.task_s for work in kept)) for node, kept in self._kept.items() if kept
        }


def check_reported(nodes: Iterable[VirtualNode], work: Mapping[VirtualNode, Work], by: str) -> None:
    """Raises PreconditionError if the driver has not reported one of the virtual nodes yet, or counts no rows."""
    every = tuple(nodes)
    if by == "rows" and any(node in work and work[node].rows is None for node in every):
        raise PreconditionError(
            f"by rows: job {every[0].job} does not count its rows: set "
            "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows to true, or go by bytes, time or count"
        )
    silent = sorted(node for node in every if node not in work)
    if silent:
        raise PreconditionError(
            f"by {by}: job {silent[0].job} has not reported the {by} of virtual nodes "
            f"{', '.join(node.name for node in silent[:20])} yet: wait for its next batch, or go by bytes or count"
        )
