"""Sessions: Ctrl-C in the middle of a call stays a KeyboardInterrupt, and the driver's JVM ends with the cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession, functions
from pyspark.sql.types import LongType

from rhino.testing import ClusterError
from rhino.testing.session import close_driver, open_session
from rhino.testing.spark_daemons import lean_jvm

# PySpark warns when the interrupted call has cost it the connection; the JVM ends all the same.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore:Unable to cleanly shutdown:RuntimeWarning"),
]
CONF = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": " ".join(lean_jvm()),
    "spark.ui.enabled": "false",
}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler: a background job of a shell starts with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def spark(tmp_path: Path, interruptible: None) -> Iterator[SparkSession]:
    yield open_session(CONF, log_path=tmp_path / "driver.log")
    close_driver()


def count_for_ever(spark: SparkSession) -> None:
    """A call is in flight nearly all the time. Ctrl-C comes until it is heard: Python ignores one in a finalizer."""
    heard = threading.Event()

    def interrupt() -> None:
        while not heard.wait(0.5):
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        while True:
            spark.range(1000).count()
    finally:
        heard.set()


def test_an_interrupted_call_is_a_keyboard_interrupt(spark: SparkSession, tmp_path: Path) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ClusterError, match=r"a SparkContext on local\[2\] is running"):
        open_session(CONF, log_path=tmp_path / "other.log")
    with pytest.raises(KeyboardInterrupt):
        count_for_ever(spark)
    close_driver()
    assert SparkContext._active_spark_context is None
    assert psutil.Process().children(recursive=True) == []


def test_functions_can_be_made_after_the_end_of_a_driver(spark: SparkSession) -> None:
    close_driver()
    assert functions.udf(lambda value: value, LongType()).returnType == LongType()


def test_why_a_driver_does_not_start_is_told(tmp_path: Path) -> None:
    conf = CONF | {"spark.driver.extraJavaOptions": "-XX:MaxRAMPercentage=most"}
    with pytest.raises(ClusterError, match=r"(?s)does not start.*MaxRAMPercentage"):
        open_session(conf, log_path=tmp_path / "driver.log")
