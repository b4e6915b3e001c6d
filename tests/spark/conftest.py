"""One local cluster for all Spark tests of this folder, and one session for those that can share it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from rhino.testing import LocalCluster

HERE = Path(__file__).parent
# Executors have one maintenance thread, whose interval is that of the first query in them.
SHARED_SETTINGS = {"spark.sql.streaming.stateStore.maintenanceInterval": "300ms"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with the shared session come last: no other session can run in this process beside it."""
    here = [(place, item) for place, item in enumerate(items) if item.path.is_relative_to(HERE)]
    ordered = sorted((item for _, item in here), key=lambda item: "shared" in getattr(item, "fixturenames", ()))
    for (place, _), item in zip(here, ordered, strict=True):
        items[place] = item


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test may fail in the middle of a call to the JVM. Later calls would get the answers of earlier ones."""
    report = yield
    shared = getattr(item, "funcargs", {}).get("shared")
    if report.failed and isinstance(shared, SharedSession):
        shared.spoiled = True
    return report


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 90) -> None:
    """Polls until `condition()` is true; fails naming `what`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.1)


class SharedSession:
    """A session on the cluster. It and its executors take many seconds to start and to become warm."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._spark: SparkSession | None = None
        self.spoiled = False  # a test has failed with it: the next one gets another driver

    def open(self) -> SparkSession:
        """The session that runs, or a new one if there is none yet, if its driver was killed, or if it is spoiled."""
        if self.spoiled and SparkContext._active_spark_context is not None:
            self._cluster.kill_driver()
        self.spoiled = False
        if self._spark is None or SparkContext._active_spark_context is None:
            self._spark = self._cluster.session("shared", SHARED_SETTINGS)
        return self._spark

    @contextmanager
    def with_settings(self, settings: Mapping[str, str]) -> Iterator[SparkSession]:
        """Settings that queries read when they start. At the end: no query runs, and all settings are as before."""
        spark = self.open()
        before = dict(spark.conf.getAll)
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            yield spark
        finally:
            if not self.spoiled:
                for query in spark.streams.active:
                    query.stop()
                for key, value in dict(spark.conf.getAll).items():
                    if key not in before:
                        spark.conf.unset(key)
                    elif before[key] != value:
                        spark.conf.set(key, before[key])

    def close(self) -> None:
        if self._spark is None or SparkContext._active_spark_context is None:
            return
        if self.spoiled:
            self._cluster.kill_driver()
        else:
            self._spark.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), workers=3) as running:
        yield running


@pytest.fixture(scope="package")
def shared(cluster: LocalCluster) -> Iterator[SharedSession]:
    made = SharedSession(cluster)
    yield made
    made.close()
