"""PySpark sessions whose driver JVM is the cluster's Java, logs into a file and ends with the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from deploy.local.process import ClusterError
from deploy.local.spark_daemons import spark_env

DRIVER_STOP_TIMEOUT_S = 20.0


def open_session(conf: Mapping[str, str], *, log_path: Path) -> SparkSession:
    """A new session with `conf`; a driver JVM started for it writes to `log_path`.

    ClusterError when this process has a running SparkContext: it would be used instead.
    """
    active = SparkContext._active_spark_context
    if active is not None:
        raise ClusterError(f"a SparkContext on {active.master} is running in this process: stop it first")
    with _environment(spark_env(conf["spark.driver.host"])), _output_into(log_path), _interrupts_kept():
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
        try:
            process.wait(DRIVER_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def driver_pid() -> int:
    """The driver's JVM. ClusterError when this process has started none."""
    return _driver().pid


def _driver() -> subprocess.Popen[bytes]:
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        raise ClusterError("no driver JVM was started by this process")
    return process


def kill_driver() -> None:
    """kill -9 of the driver's JVM; PySpark forgets it and what was connected to it, without a word to the cluster."""
    process, gateway = _driver(), SparkContext._gateway
    assert gateway is not None
    process.kill()
    process.wait()
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


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


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """PySpark's own handler of Ctrl-C calls the JVM, on the connection that the interrupted call still uses: the
    outcome is a Py4JError instead of a KeyboardInterrupt. Whoever asked for the session keeps their handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _output_into(path: Path) -> Iterator[None]:
    """A JVM started meanwhile inherits `path` as its standard output and error."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), saved, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
