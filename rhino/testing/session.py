"""PySpark sessions with a driver JVM that uses the cluster's Java, logs to a file and ends with the cluster."""

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
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from rhino.testing.process import ClusterError, tail_of
from rhino.testing.spark_daemons import spark_env

DRIVER_STOP_TIMEOUT_S = 20.0


def open_session(conf: Mapping[str, str], *, log_path: Path) -> SparkSession:
    """Opens a new session with `conf`. If a driver JVM is started, it writes to `log_path`.

    Raises ClusterError when this process has a running SparkContext, because Spark would use it instead, and when the
    JVM ends at once.
    """
    active = SparkContext._active_spark_context
    if active is not None:
        raise ClusterError(f"a SparkContext on {active.master} is running in this process: stop it first")
    with _environment(spark_env(conf["spark.driver.host"])), output_into(log_path), _interrupts_kept():
        try:
            return SparkSession.builder.config(map=dict(conf)).getOrCreate()
        except PySparkRuntimeError as error:
            tail = tail_of(log_path.read_text(errors="replace"), log_path)
            raise ClusterError(f"Spark's driver does not start: {error}{tail}") from error


def close_driver(timeout_s: float = DRIVER_STOP_TIMEOUT_S) -> None:
    """Stops the present session, if any, and ends the driver JVM. The next session starts another JVM. Idempotent.

    `timeout_s`: the JVM has so long for its end. Then it is killed.
    """
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
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None  # `functions.udf` would ask its JVM for settings


def driver_pid() -> int:
    """Pid of the driver's JVM. Raises ClusterError when this process has started none."""
    return _driver().pid


def _driver() -> subprocess.Popen[bytes]:
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        raise ClusterError("no driver JVM was started by this process")
    return process


def kill_driver() -> None:
    """kill -9 of the driver's JVM. Clears PySpark's references to it, without notice to the cluster."""
    process, gateway = _driver(), SparkContext._gateway
    assert gateway is not None
    process.kill()
    process.wait()
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Replaces this process's environment. PySpark passes it to the driver's JVM."""
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
    """Keeps the caller's handler of Ctrl-C.

    PySpark's own handler calls the JVM on the connection still in use by the interrupted call. The result would be a
    Py4JError instead of a KeyboardInterrupt.
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
def output_into(path: Path) -> Iterator[None]:
    """A JVM started inside this context writes its standard output and error to `path`."""
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
