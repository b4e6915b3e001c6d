"""`python -m examples.survive`: every kind of process is lost while a query runs, and its output stays exact.

A worker, the leading manager and the driver are killed with kill -9, a worker is decommissioned, and a node falls
silent. Each comes back after a while. Three sidecars keep the journal of two managers, and a standby driver waits.
DuckDB checks each row of each batch.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from examples.survive.application import NAME
from examples.survive.losses import Drivers, Loss, losses
from examples.survive.output import check
from examples.survive.picture import draw
from rhino.client.overview import fetch_overview
from rhino.testing import ClusterShape
from rhino.testing.elastic import ElasticCluster
from rhino.testing.process import Process
from rhino.testing.query_watch import RunError
from rhino.testing.reaper import Reaper
from rhino.testing.spark_daemons import spark_env
from rhino_core.errors import RhinoError, UnavailableError
from workloads.nexmark.output import Verdict

WORKERS, PARTITIONS, FIRST_BATCHES = 3, 6, 10
START_S, BATCH_S, WHOLE_S = 240.0, 240.0, 300.0  # after so long the scene has failed
POLL_S = 0.1
SETTINGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.decommission.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "100",
}


class Scene:
    """Everything lies below `work`."""

    def __init__(self, work: Path, rounds: int, pause_s: float, console: Console) -> None:
        self._work = work
        self._rounds = rounds
        self._pause_s = pause_s
        self._console = console
        self._reaper = Reaper()
        self._applications = 0
        shape = ClusterShape(worker_cores=1, executor_memory_mb=512, applications=2, managers=2)
        self._cluster = ElasticCluster(work / "cluster", workers=WORKERS, shape=shape)
        self._happened: list[tuple[float, str]] = []
        self._logged: dict[int, float] = {}  # when each batch was, in seconds since the epoch

    def run(self, picture: Path) -> Verdict:
        """Raises RunError when the query or a copy of its state does not come back."""
        drivers: Drivers | None = None
        try:
            with self._cluster:
                drivers = Drivers(self._application)
                self._wait("the first batches", START_S, lambda: self._committed() >= FIRST_BATCHES)
                self._wait("the standby", START_S, drivers.ready)
                for _ in range(self._rounds):
                    for loss in losses(self._cluster, drivers):
                        self._lose(loss)
                        self._wait("the standby", START_S, drivers.ready)
                drivers.stop()
                batches = self._committed() + 1
                self._say(f"comparing the output of {batches} batches with DuckDB over the same numbers")
                draw(picture, self._times(), self._happened)
                return check(self._work / "output", batches)
        finally:
            if drivers is not None:
                drivers.stop()
            self._reaper.close()

    def _application(self, standby: bool) -> Process:
        self._applications += 1
        name = f"application-{self._applications}"
        conf = self._work / f"{name}.json"
        conf.write_text(json.dumps(self._cluster.conf(name, SETTINGS)))
        command = [sys.executable, "-m", "examples.survive.application", str(conf), str(self._work)]
        command += ["--standby"] * standby
        env, logs = spark_env(self._cluster.network.center), self._cluster.log_dir
        return Process(name, command, log_dir=logs, env=env, reaper=self._reaper)

    def _lose(self, loss: Loss) -> None:
        time.sleep(self._pause_s)
        before, at = self._committed(), time.time()
        self._happened.append((at, loss.name))
        loss.happens()
        self._wait("the next batches", BATCH_S, lambda: self._committed() >= before + 3)
        gaps = [after - before for before, after in pairwise(self._times()) if after >= at]
        self._say(f"{loss.name}: longest time between two batches {max(gaps):.1f} s")
        time.sleep(self._pause_s)
        loss.comes_back()
        self._wait("all copies", WHOLE_S, self._whole)

    def _whole(self) -> bool:
        """Whether all workers are here, and all copies."""
        try:
            overview = fetch_overview(self._cluster.manager)
        except UnavailableError:
            return False
        job = next((one for one in overview.jobs if one.name == NAME and one.connected), None)
        live = [worker for worker in overview.workers if worker.state == "live"]
        return job is not None and len(live) == WORKERS and all(len(n.holders) > 1 for n in job.virtual_nodes)

    def _times(self) -> list[float]:
        """When each batch was logged, in the order of the batches."""
        return [self._logged[batch] for batch in sorted(self._logged)]

    def _committed(self) -> int:
        """The newest batch in the commit log. Spark deletes old entries."""
        for path in (self._work / "checkpoint" / "commits").glob("[0-9]*"):
            if path.name.isdigit() and int(path.name) not in self._logged:
                with suppress(FileNotFoundError):
                    self._logged[int(path.name)] = path.stat().st_mtime
        return max(self._logged, default=-1)

    def _wait(self, what: str, limit_s: float, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until:
                raise RunError(f"{what} did not come within {limit_s:g} s")
            time.sleep(POLL_S)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def main(argv: Sequence[str]) -> int:
    """Returns exit code 0 if the output is exact, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.survive", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each of them is lost")
    parser.add_argument("--pause-s", type=float, default=10.0, help="seconds before a loss, and before the return")
    parser.add_argument("--out", type=Path, default=Path("build/survive"), help="folder of survive.png, data and logs")
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    out = options.out.resolve()
    work = out / "rhino-survive"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    picture = out / "survive.png"
    try:
        found = Scene(work, options.rounds, options.pause_s, console).run(picture)
    except RhinoError as error:
        console.print(f"FAILED {error}; data and logs are in {work}", highlight=False, soft_wrap=True)
        return 1
    print(f"{found.rows:,} rows, {found.missing} missing, {found.extra} extra; {picture}")
    if not found.equal or not found.rows:
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
