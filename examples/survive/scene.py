"""The scene: a cluster, a query with a standby, and one loss after another."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from examples.survive.application import NAME
from examples.survive.losses import Drivers, Loss, losses
from examples.survive.output import check
from rhino.client.overview import fetch_overview
from rhino.testing import ClusterShape
from rhino.testing.elastic import ElasticCluster
from rhino.testing.process import Process
from rhino.testing.query_watch import RunError
from rhino.testing.reaper import Reaper
from rhino.testing.spark_daemons import spark_env
from rhino_core.errors import UnavailableError
from workloads.nexmark.output import Verdict

WORKERS, PARTITIONS, FIRST_BATCHES = 3, 6, 10
START_S, BATCH_S, WHOLE_S = 240.0, 240.0, 300.0  # after so long the scene has failed
POLL_S = 0.1
SETTINGS = {
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.decommission.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "100",
}


@dataclass(frozen=True, slots=True)
class Happened:
    """`at`: seconds since the epoch. `longest_s`: the longest time between two batches until the third one after it."""

    at: float
    name: str
    longest_s: float


@dataclass(frozen=True, slots=True)
class Story:
    """`logged`: when each batch was, in seconds since the epoch."""

    verdict: Verdict
    logged: list[float]
    happened: list[Happened]


class Scene:
    """Everything lies below `work`. `only`: kinds of losses; all, if it is empty. `say` gets a line for each loss.

    `beside`: runs from the moment when query and standby run until the last loss is over. `cold`: the standby has no
    executors until the driver before it is gone.
    """

    def __init__(
        self,
        work: Path,
        rounds: int,
        pause_s: float,
        say: Callable[[str], None],
        only: Collection[str] = (),
        beside: AbstractContextManager[None] | None = None,
        *,
        cold: bool = False,
    ) -> None:
        self._work = work
        self._rounds = rounds
        self._pause_s = pause_s
        self._say = say
        self._only = only
        self._beside = beside or nullcontext()
        self._reaper = Reaper()
        self._applications = 0
        shape = ClusterShape(worker_cores=1, executor_memory_mb=512, applications=1 if cold else 2, managers=2)
        self._cluster = ElasticCluster(work / "cluster", workers=WORKERS, shape=shape)
        self._happened: list[Happened] = []
        self._logged: dict[int, float] = {}  # when each batch was, in seconds since the epoch

    def run(self) -> Story:
        """Raises RunError when the query or a copy of its state does not come back."""
        drivers: Drivers | None = None
        try:
            with self._cluster:
                drivers = Drivers(self._application)
                self._wait("the first batches", START_S, lambda: self._committed() >= FIRST_BATCHES)
                drivers.another()
                self._wait("the standby", START_S, drivers.ready)
                kinds = [one for one in losses(self._cluster, drivers) if not self._only or one.kind in self._only]
                with self._beside:
                    for loss in kinds * self._rounds:
                        self._lose(loss)
                        self._wait("the standby", START_S, drivers.ready)
                drivers.stop()
                batches = self._committed() + 1
                self._say(f"comparing the output of {batches} batches with DuckDB over the same numbers")
                return Story(check(self._work / "output", batches), self._times(), self._happened)
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
        time.sleep(self._pause_s + random.random())  # at any moment of a batch
        before, at = self._committed(), time.time()
        loss.happens()
        self._wait("the next batches", BATCH_S, lambda: self._committed() >= before + 3)
        gaps = [after - before for before, after in pairwise(self._times()) if after >= at]
        self._happened.append(Happened(at, loss.name, max(gaps)))
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
            self._cluster.revive_managers()
            if time.monotonic() > until:
                self._cluster.check()
                raise RunError(f"{what} did not come within {limit_s:g} s")
            time.sleep(POLL_S)
