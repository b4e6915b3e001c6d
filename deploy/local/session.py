"""PySpark sessions whose driver JVM is the cluster's Java and ends with the cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from deploy.local.process import ClusterError
from deploy.local.spark_daemons import spark_env


def open_session(conf: Mapping[str, str]) -> SparkSession:
    """A new session with `conf`. ClusterError when this process has a running SparkContext: it would be reused."""
    active = SparkContext._active_spark_context
    if active is not None:
        raise ClusterError(f"a SparkContext on {active.master} is running in this process: stop it first")
    with _environment(spark_env(conf["spark.driver.host"])):
        return SparkSession.builder.config(map=dict(conf)).getOrCreate()


def close_driver() -> None:
    """Stops what session is left and ends the driver JVM; the next session starts another. Idempotent."""
    active = SparkContext._active_spark_context
    if active is not None:
        active.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # the JVM ends at the end of its standard input
        process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """PySpark starts the driver's JVM with this process's environment."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
