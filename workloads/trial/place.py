"""The environment of a job: this process's `local[2]`, or a standalone cluster on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from rhino.testing import LocalCluster
from rhino.testing.conf import stock_settings
from rhino.testing.session import close_driver, open_session
from spark_connector.local.daemons import temporary_daemons

WORKERS = 3
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Place:
    spark: SparkSession
    cluster: LocalCluster | None  # None: local[2]
    provider: str  # rhino | stock

    def check(self) -> None:
        """Raises ClusterError when a process of the cluster has ended unexpectedly."""
        if self.cluster is not None:
            self.cluster.check()


def session_conf() -> dict[str, str]:
    """Settings for every job, with or without Rhino."""
    modules = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    return {
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.session.timeZone": "UTC",
        # Python workers run functions of these modules.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([modules, os.environ.get("PYTHONPATH", "")]),
        "spark.pyspark.python": sys.executable,
    }


@contextmanager
def place(folder: Path, *, cluster: bool, provider: str) -> Iterator[Place]:
    """Yields a session in `folder`, which must exist. Everything that was started ends with the context."""
    conf = session_conf()
    if cluster:
        with LocalCluster(folder / "cluster", workers=WORKERS, rhino=provider == "rhino") as running:
            yield Place(running.session("rhino benchmark", conf), running, provider)
        return
    local = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
        "spark.local.dir": str(folder / "spark"),
    }
    with ExitStack() as stack:
        state = stack.enter_context(temporary_daemons()).conf() if provider == "rhino" else stock_settings()
        stack.callback(close_driver)
        yield Place(open_session({**state, **local, **conf}, log_path=folder / "driver.log"), None, provider)
