"""State variables of processors, compared without Spark."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from query_evolution.modify.code import code_of, processor_function
from query_evolution.modify.variables import check
from rhino_core.errors import InvalidRequestError

OUTPUT = StructType([StructField("k", LongType())])
Init = Callable[[StatefulProcessorHandle], object]


def declares(init: Init, time_mode: str = "None") -> Any:
    class Processor(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.variables = init(handle)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            return rows

        def close(self) -> None:
            pass

    return processor_function(Processor(), OUTPUT, time_mode=time_mode)


def header(old: Any, new: Any) -> str:
    codes = {"old": code_of(old).pickled, "new": code_of(new).pickled}
    return json.dumps({version: base64.b64encode(code).decode() for version, code in codes.items()})


def value(schema: Any, ttl_ms: int | None = None) -> Init:
    return lambda handle: handle.getValueState("total", schema, ttl_ms)


STRUCT = StructType([StructField("n", LongType()), StructField("s", LongType())])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (value("n bigint"), value("n  BIGINT")),
        (value("n bigint,s bigint"), value(STRUCT)),
        (value("n bigint", 1000), value("n bigint", 9000)),
        (
            lambda handle: (handle.getListState("a", "n int"), handle.getMapState("b", "k int", "n int")),
            lambda handle: (handle.getMapState("b", "k int", "n int"), handle.getListState("a", "n int")),
        ),
    ],
)
def test_the_same_variables(old: Init, new: Init) -> None:
    assert check(header(declares(old), declares(new))) == ""


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (value("n int"), "is value(n bigint), and in the new processor value(n int): state variables must stay"),
        (value("n bigint", 1000), "in the new processor value(n bigint) with TTL"),
        (lambda handle: handle.getListState("total", "n bigint"), "in the new processor list(n bigint)"),
        (lambda handle: None, "the state variable total is value(n bigint), and in the new processor not there"),
        (
            lambda handle: (handle.getValueState("total", "n bigint"), handle.getMapState("more", "k int", "n int")),
            "the state variable more is not there, and in the new processor map(k int, n int)",
        ),
    ],
)
def test_other_variables(new: Init, said: str) -> None:
    assert said in check(header(declares(value("n bigint")), declares(new)))


def test_another_time_mode() -> None:
    old, new = declares(value("n int"), "none"), declares(value("n int"), "EventTime")
    assert check(header(old, new)) == "the query has the time mode none, and the new processor EventTime"
    assert check(header(old, declares(value("n int"), "None"))) == ""


RUN = """
import base64, pickle, sys
check, _ = pickle.loads(base64.b64decode(sys.stdin.readline()))
print(check(sys.stdin.readline()))
assert not [name for name in sys.modules if name.startswith(("rhino", "spark_connector"))]
"""


def test_the_code_that_executors_get_needs_nothing_of_rhino() -> None:
    old = processor_function(outside(), OUTPUT)
    guard = code_of(old).guard
    given = f"{base64.b64encode(guard).decode()}\n{header(old, old)}\n"
    command = [sys.executable, "-c", RUN]
    ended = subprocess.run(command, input=given, cwd="/", env={}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "\n"), ended.stderr


def outside() -> Any:
    """A processor that refers to nothing of this module."""

    class Processor(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", "n int")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            return rows

        def close(self) -> None:
            pass

    return Processor()


def test_what_is_no_processor_function() -> None:
    with pytest.raises(InvalidRequestError, match="state_function or processor_function"):
        code_of(outside())
