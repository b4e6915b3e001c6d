"""`python -m benchmarks.overhead`: the cost of Rhino for an undisturbed query (the paper's Figure 5).

Spark's own RocksDB provider, with its checkpoint on the local disk, beside Rhino's with the same settings, on one
cluster. For each setting of Rhino both run in the same session, in alternating slices; the first two batches of a slice
do not count, nor does the first slice of each. Compare the ratios, and absolute figures only within a run. With
`--archive`, a third subject is archived to a folder, as often as by default.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks.burning import add_busy, burning
from benchmarks.command import folder, main, show
from benchmarks.overhead.loads import LOADS
from benchmarks.overhead.report import Row, rows_of, table
from benchmarks.overhead.resources import peaks
from benchmarks.overhead.subject import ARCHIVED, PROVIDERS, Subject
from rhino.testing import ClusterShape, LocalCluster
from spark_connector.query_checkpoint import PROVIDER_KEY
from workloads.machine import machine

# All in full: what is left out would come from the session before, with which PySpark has started the JVM.
SETTINGS = {
    f"r{replicas}{suffix}": {
        "spark.rhino.replicationFactor": str(replicas),
        "spark.rhino.minCopies": str(replicas + 1),
        "spark.rhino.durability": durability,
    }
    for suffix, durability in (("", "replicated"), ("-synced", "synced"))
    for replicas in (1, 2)
}


def _run() -> None:
    arguments = _arguments()
    console = Console(stderr=True)
    report: dict[str, object] = {"command": " ".join(["python -m benchmarks.overhead", *sys.argv[1:]])}
    report["machine"] = machine()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="rhino-overhead-", dir=arguments.dir) as temporary:
        folder = Path(temporary).resolve()
        shape = ClusterShape()
        if arguments.archive:
            (folder / "archive").mkdir()
            shape = ClusterShape(manager_options=("--archive", str(folder / "archive")))
        with LocalCluster(folder / "cluster", workers=arguments.workers, shape=shape) as cluster:
            for setting in arguments.settings:
                for found in _measure(cluster, setting, folder / setting, arguments, console):
                    rows += found
                    report["rows"] = [asdict(row) for row in rows]
                    if arguments.json:  # what is measured stays, should the rest fail
                        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    show(table(rows))


def _measure(
    cluster: LocalCluster, setting: str, folder: Path, arguments: argparse.Namespace, console: Console
) -> Iterator[list[Row]]:
    """The rows of each load under one setting of Rhino."""
    conf = {
        PROVIDER_KEY: PROVIDERS["stock"],  # of the application: with Rhino's, the plugin would end queries of the other
        "spark.sql.shuffle.partitions": str(arguments.partitions),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # An executor waits for its tasks' own worker, so that no slice begins with state on the wrong one.
        "spark.locality.wait": "3s",
    }
    spark = cluster.session(f"overhead {setting}", conf | SETTINGS[setting])
    try:
        for load in arguments.loads:
            names = (*PROVIDERS, ARCHIVED) if arguments.archive else tuple(PROVIDERS)
            archive = str(folder.with_name("archive")) if arguments.archive else ""
            subjects = [Subject(name, load, arguments.rows_per_batch, folder, archive) for name in names]
            console.print(f"{setting} {load}: warming up")
            for subject in subjects:  # the JVMs load and compile the query's classes: nobody's batches pay for it
                subject.run(spark, cluster, arguments.batches, counted=False)
            with burning(arguments.busy):
                for turn in range(arguments.rounds):
                    console.print(f"{setting} {load}: round {turn + 1} of {arguments.rounds}")
                    # Whoever goes first in one round goes last in the next.
                    for subject in subjects if turn % 2 == 0 else reversed(subjects):
                        subject.run(spark, cluster, arguments.batches)
            yield rows_of(setting, subjects, *peaks(cluster))
    finally:
        spark.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--rows-per-batch", type=int, default=40_000)
    parser.add_argument("--batches", type=int, default=10, help="that count, of each slice")
    parser.add_argument("--rounds", type=int, default=4, help="slices of each provider")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--loads", nargs="+", choices=tuple(LOADS), default=tuple(LOADS))
    parser.add_argument("--settings", nargs="+", choices=tuple(SETTINGS), default=tuple(SETTINGS))
    parser.add_argument("--archive", action="store_true", help="a third subject: rhino with an archive")
    add_busy(parser)
    parser.add_argument("--dir", type=folder, help="where to work")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(_run))
