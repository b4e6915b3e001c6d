"""A complete trial: runs the job from its first batch to its last through faults, and compares the output."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from workloads.nexmark import output as outputs
from workloads.nexmark.output import Verdict
from workloads.trial import faults
from workloads.trial.job import Job, Sink
from workloads.trial.place import Place
from workloads.trial.running import Running
from workloads.trial.timeline import Timeline

WARM_UP_BATCHES = 3  # class loading and compilation


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one job."""

    job: str
    provider: str
    cluster: bool
    events: int
    verdict: Verdict
    timeline: Timeline

    @property
    def right(self) -> bool:
        return self.verdict.equal and self.verdict.rows > 0 and self.timeline.dropped == 0

    def steady_ms(self) -> list[int]:
        """Durations of batches after the warm-up that overlap no fault, in milliseconds."""
        busy = [(fault.started_ms, fault.ended_ms) for fault in self.timeline.faults]
        return [
            batch.duration_ms
            for batch in self.timeline.ordered()
            if batch.batch_id >= WARM_UP_BATCHES
            and all(batch.started_ms + batch.duration_ms < begin or batch.started_ms > end for begin, end in busy)
        ]

    def as_json(self) -> dict[str, Any]:
        """Plain data for a report."""
        steady = self.steady_ms()
        return {
            "job": self.job,
            "provider": self.provider,
            "cluster": self.cluster,
            "events": self.events,
            **asdict(self.verdict),
            "dropped": self.timeline.dropped,
            "right": self.right,
            "batch_ms_p50": statistics.median(steady) if steady else None,
            "state_rows_max": max((b.state_rows for b in self.timeline.ordered()), default=0),
            "faults": [asdict(fault) for fault in self.timeline.faults],
            "batches": [asdict(batch) for batch in self.timeline.ordered()],
        }


def run(
    job: Job,
    place: Place,
    folder: Path,
    kinds: Sequence[str],
    *,
    interval_s: float = 0.0,
    on_poll: Callable[[int], None] = lambda _: None,
) -> Trial:
    """Runs `job` in `folder`, which is emptied first. The faults `kinds` are spread over the run.

    Raises RunError or ClusterError when the job fails or hangs. A wrong output is reported in the result.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    running = Running(job, place, folder, interval_s=interval_s, on_poll=on_poll)
    try:
        running.start()
        for turn, kind in enumerate(kinds, start=1):
            running.reach(round(job.goal * turn / (len(kinds) + 1)))
            running.timeline.faults.append(faults.carry_out(kind, running))
        running.finish()
    except Exception:
        running.stop()
        raise
    running.stop()
    verdict = compare(job, running.output, running.watch.committed())
    return Trial(job.name, place.provider, place.cluster is not None, job.events, verdict, running.timeline)


def compare(job: Job, output: Path, committed: int) -> Verdict:
    """Compares the output of batches up to `committed` with the answer."""
    with duckdb.connect() as db:
        sql = job.answer(db)
        db.execute(f"create table expected ({', '.join(job.columns)}) as {sql}")
        if job.sink is Sink.FILES:
            outputs.load(db, "got", output, job.columns)
        else:
            _load_batches(db, job, output, committed)
        return outputs.compare(db, "got", "expected")


def _load_batches(db: duckdb.DuckDBPyConnection, job: Job, output: Path, committed: int) -> None:
    """Loads the rows of committed batches. A later batch may be incomplete."""
    files = [str(p) for b in range(committed + 1) for p in (output / f"batch={b}").glob("*.parquet")]
    newest = f"qualify row_number() over (partition by {', '.join(job.key)} order by batch::int desc) = 1"
    db.execute(
        f"create table got as select {', '.join(job.columns)} from read_parquet($files, hive_partitioning = true) "
        + (newest if job.sink is Sink.CHANGES else ""),
        {"files": files},
    )
