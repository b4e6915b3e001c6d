"""`python -m examples.demo.lost_cluster`: a whole cluster and its disks are lost, and a new one goes on.

NBQ8 runs with an archive. In the middle, kill -9 ends the driver, all workers and the manager, and their disks are
deleted. Only the query checkpoint, the output and the archive are left, which lie elsewhere. A new cluster takes the
query to its archived batch and finishes it. DuckDB checks the output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from examples.demo import oracle, query
from examples.demo.run import SESSION_CONF
from rhino.client.handover_client import HandoverClient
from rhino.testing import ClusterShape, LocalCluster
from rhino.testing.query_watch import QueryWatch, RunError
from rhino_core.errors import RhinoError
from rhino_core.security.sources import new_cluster_key
from rhino_core.settings import CLUSTER_KEY_VARIABLE
from spark_connector.query_checkpoint import QueryCheckpoint
from workloads.nexmark.output import Verdict

LOST_AT = 0.6  # fraction of the batches
ARCHIVE_EVERY_S = 2


class Scene:
    """Everything lies below `work`: the folders of the clusters, and what survives them."""

    def __init__(self, load: query.Workload, work: Path, console: Console) -> None:
        self._load = load
        self._work = work
        self._console = console
        self._archive = work / "archive"

    def run(self) -> Verdict:
        self._archive.mkdir(parents=True)
        new_cluster_key(self._work / "cluster.key")
        os.environ[CLUSTER_KEY_VARIABLE] = str(self._work / "cluster.key")
        with self._cluster("first") as cluster:
            at = self._until_the_loss(cluster)
        with self._cluster("second") as cluster:
            return self._go_on(cluster, at)

    def _cluster(self, name: str) -> LocalCluster:
        options = ("--archive", str(self._archive), "--archive-every-s", str(ARCHIVE_EVERY_S))
        return LocalCluster(self._work / name, shape=ClusterShape(manager_options=options))

    def _until_the_loss(self, cluster: LocalCluster) -> float:
        """Returns the time of the loss (monotonic seconds)."""
        self._say(f"first cluster: {query.NAME}, {self._load.events:,} events in {self._load.batches} batches")
        started = query.start(cluster.session("Rhino demo", SESSION_CONF), self._load, self._work)
        watch = self._watch(started, cluster)
        watch.wait_for_batch(round(LOST_AT * self._load.batches))
        with HandoverClient(cluster.manager) as client:
            watch.wait_for(lambda: any(one.batch_id >= 0 for one in client.archive().queries))
        self._say(f"kill -9 of everything after batch {watch.committed()}, and all disks are deleted")
        cluster.kill_driver()
        for index in range(len(cluster.workers)):
            cluster.kill_worker(index)
        cluster.kill_manager()
        at = time.monotonic()
        cluster.stop()
        shutil.rmtree(cluster.folder)
        return at

    def _go_on(self, cluster: LocalCluster, lost_at: float) -> Verdict:
        self._say(f"second cluster: ready {time.monotonic() - lost_at:.1f} s after the loss")
        checkpoint = QueryCheckpoint(self._work / "checkpoint")
        self._rhino(cluster, "archive", "claim", "--job", checkpoint.job, "--yes")
        output = str(self._work / "output")
        self._rhino(cluster, "rewind", str(checkpoint.folder), "--file-sink", output, "--yes")
        spark = cluster.session("Rhino demo", SESSION_CONF)
        started = query.start(spark, self._load, self._work)
        watch = self._watch(started, cluster)
        watch.wait_for_batch(watch.committed() + 1)
        self._say(f"batch {watch.committed()} done {time.monotonic() - lost_at:.1f} s after the loss")
        watch.wait_for_batch(self._load.batches - 1)
        started.stop()
        self._say("comparing the output with DuckDB over the same events")
        return oracle.check(spark, self._load, self._work)

    def _watch(self, started: StreamingQuery, cluster: LocalCluster) -> QueryWatch:
        return QueryWatch(started, self._work / "checkpoint", on_poll=lambda committed: None, check=cluster.check)

    def _rhino(self, cluster: LocalCluster, *arguments: str) -> None:
        """Runs a command of `rhino`. Raises RunError if it fails."""
        self._say(f"$ rhino {' '.join(arguments)}")
        command = [sys.executable, "-m", "rhino.cli.main", *arguments, "--manager", cluster.manager]
        if subprocess.run(command, check=False).returncode:
            raise RunError(f"rhino {arguments[0]} has failed")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def main(argv: Sequence[str]) -> int:
    """Returns exit code 0 if the output is exact, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo.lost_cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=400_000, help="persons and auctions together")
    parser.add_argument("--batches", type=int, default=24, help="micro-batches that they come in")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), help="folder for data and logs")
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    work = options.out.resolve() / "rhino-lost-cluster"
    shutil.rmtree(work, ignore_errors=True)
    try:
        found = Scene(query.Workload(-(-options.events // 4), options.batches), work, console).run()
    except RhinoError as error:
        console.print(f"FAILED {error}; data and logs are in {work}", highlight=False, soft_wrap=True)
        return 1
    print(f"{found.rows:,} rows, {found.missing} missing, {found.extra} extra")
    if not found.equal or not found.rows:
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
