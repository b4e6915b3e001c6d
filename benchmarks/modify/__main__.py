"""`python -m benchmarks.modify`: the code of a running query is changed, as `rhino modify` does it.

The stateful map query of BTW 2019 gets another function for its state, NBQ5 and NBQ8 another filter. All versions do
the same work, so the switching batch is compared with the batches before it. The commands come in different phases of a
batch.

With `--idle-rounds`, two checkpoints of each query without a modification run in turns, one of them without Rhino's
machinery for modifications; `--changes 0` measures nothing else. Slices have no pauses, whatever `--every-ms` says.
Compare ratios, and absolute figures only within a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.command import folder, main, show
from benchmarks.modify.changes import Changed, change, running
from benchmarks.modify.idle import IdleSlice, idle_of, idle_slices, idle_table
from benchmarks.modify.loads import LOADS
from benchmarks.modify.summary import changes_of, table
from rhino.testing import ClusterShape, LocalCluster
from rhino.testing.query_watch import Batch
from workloads.machine import machine

CONF = {
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.locality.wait": "3s",
}


@dataclass(slots=True)
class Found:
    """All results so far."""

    changed: list[Changed] = field(default_factory=list)
    idle: list[IdleSlice] = field(default_factory=list)
    batches: dict[str, list[Batch]] = field(default_factory=dict)


def _run() -> None:
    arguments = _arguments()
    console = Console(stderr=True)
    found, facts = Found(), machine()

    def say(what: str) -> None:
        console.print(what, highlight=False)

    with tempfile.TemporaryDirectory(prefix="rhino-modify-", dir=arguments.dir) as temporary:
        for number in range(1, arguments.rounds + 1):
            with _session(Path(temporary) / f"round-{number}", arguments) as (cluster, spark):
                for load in arguments.loads:
                    if arguments.changes:
                        checkpoint = cluster.folder / load
                        every_ms = arguments.every_ms
                        with running(spark, cluster, load, arguments.rows_per_batch, checkpoint, every_ms) as watch:
                            plan = every_ms, number
                            changed, batches = change(watch, load, checkpoint, arguments.changes, say, plan)
                        found.changed += changed
                        found.batches[load] = batches
                        _write(arguments.json, facts, found)
                    if number == arguments.rounds and arguments.idle_rounds:
                        say(f"{load}: without a modification, and without what Rhino has for them")
                        slices = arguments.idle_rounds, arguments.batches
                        found.idle += idle_slices(spark, cluster, load, arguments.rows_per_batch, slices)
                        _write(arguments.json, facts, found)
    if found.changed:
        show(table(changes_of(found.changed)))
    if found.idle:
        show(idle_table(idle_of(found.idle)))


@contextmanager
def _session(folder: Path, arguments: argparse.Namespace) -> Iterator[tuple[LocalCluster, SparkSession]]:
    folder.mkdir(parents=True)
    shape = ClusterShape(executor_memory_mb=1024)
    with LocalCluster(folder, workers=arguments.workers, shape=shape) as cluster:
        partitions = {"spark.sql.shuffle.partitions": str(arguments.partitions)}
        spark = cluster.session("rhino benchmark", CONF | partitions)
        try:
            yield cluster, spark
        finally:
            spark.stop()


def _write(path: Path | None, facts: object, found: Found) -> None:
    if path is None:
        return
    report = {
        "command": " ".join(["python -m benchmarks.modify", *sys.argv[1:]]),
        "machine": facts,
        "summary": changes_of(found.changed),
        "idle": idle_of(found.idle),
        "changes": [asdict(one) | {"ratio": one.ratio} for one in found.changed],
        "idle_slices": [asdict(one) for one in found.idle],
        "durations": [{"load": load, **asdict(batch)} for load, its in found.batches.items() for batch in its],
    }
    path.write_text(json.dumps(report, indent=2) + "\n")


def _milliseconds(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected whole milliseconds, such as 1000, or 0")
    return int(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.modify", description=__doc__)
    parser.add_argument("--loads", nargs="+", choices=tuple(LOADS), default=("mapquery", "nbq5", "nbq8"))
    parser.add_argument("--changes", type=int, default=5, help="of each query in a round (default: 5; 0: none)")
    parser.add_argument("--rounds", type=int, default=3, help="each in a cluster of its own (default: 3)")
    parser.add_argument("--rows-per-batch", type=int, default=20_000)
    every = "the trigger begins a batch so often (default: 0, as soon as the former one has ended)"
    parser.add_argument("--every-ms", type=_milliseconds, default=0, help=every)
    parser.add_argument("--idle-rounds", type=int, default=0, help="slices with and without Rhino's part, unmodified")
    parser.add_argument("--batches", type=int, default=10, help="that count, of each slice")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--dir", type=folder, help="where to work")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(_run))
