"""Run by suites.py in a process of its own: one module of PySpark's tests. Writes a line for each test that ends."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pyspark.sql
from pyspark import SparkConf, SparkContext
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.query import StreamingCheckpointManager
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rhino import rhino_checkpoint

LOCATION = "checkpointLocation"
STATE_READERS = ("statestore", "state-metadata")


class Recorder(unittest.TestResult):
    """Writes a JSON line for each test, and for each failing part of one."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out = out
        self._began = time.monotonic()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._began = time.monotonic()
        print(f"======== {test.id()}", file=sys.stderr, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._write(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._write(test, "skipped", reason)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._failed(test, err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._failed(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._failed(test, err)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._write(test, "passed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._write(test, "failed", "passed, but was expected to fail")

    def _failed(self, test: unittest.TestCase, err: Any) -> None:
        text = "".join(traceback.format_exception(*err))
        print(text, file=sys.stderr, flush=True)
        self._write(test, "failed", text)

    def _write(self, test: unittest.TestCase, outcome: str, text: str = "") -> None:
        seconds = round(time.monotonic() - self._began, 1)
        line = {"test": test.id(), "outcome": outcome, "seconds": seconds, "text": text}
        print(json.dumps(line), file=self._out, flush=True)


def use_settings(settings: dict[str, str]) -> None:
    """Gives `settings` to every SparkContext. They take precedence over those of the test."""
    inner = SparkContext.__init__

    @functools.wraps(inner)
    def init(self: SparkContext, master: Any = None, appName: Any = None, **others: Any) -> None:
        conf = others.pop("conf", None) or SparkConf()
        for key, value in settings.items():
            conf.set(key, value)
        inner(self, settings["spark.master"], appName, conf=conf, **others)

    SparkContext.__init__ = init


def use_rhino_checkpoints() -> None:
    """Puts each query checkpoint on rhino://, also of a query that has none of its own, and looks for state there."""
    _options_of(DataStreamWriter, _write_location)
    _options_of(DataFrameReader, _read_location)
    for name in ("start", "toTable"):
        _before(DataStreamWriter, name, _give_location)
    _before(DataFrameReader, "load", _read_path)
    repartition = StreamingCheckpointManager.repartition
    StreamingCheckpointManager.repartition = lambda self, location, *rest, **named: repartition(
        self, _on_rhino(location), *rest, **named
    )
    read_format = DataFrameReader.format

    def remember_format(self: DataFrameReader, source: str) -> DataFrameReader:
        self._of_state = source in STATE_READERS
        return read_format(self, source)

    DataFrameReader.format = remember_format


def _on_rhino(location: Any) -> Any:
    """Leaves what is no absolute path to Spark, which refuses it."""
    return rhino_checkpoint(location) if isinstance(location, str) and location.startswith("/") else location


def _write_location(writer: Any, key: str, value: Any) -> Any:
    if key != LOCATION or value is None:
        return value
    writer._located = True
    return _on_rhino(value)


def _read_location(reader: Any, key: str, value: Any) -> Any:
    return _on_rhino(value) if key == "path" and getattr(reader, "_of_state", False) else value


def _options_of(reader_or_writer: Any, convert: Callable[[Any, str, Any], Any]) -> None:
    option, options = reader_or_writer.option, reader_or_writer.options
    reader_or_writer.option = lambda self, key, value: option(self, key, convert(self, key, value))
    reader_or_writer.options = lambda self, **named: options(
        self, **{key: convert(self, key, value) for key, value in named.items()}
    )


def _before(kind: Any, name: str, act: Callable[..., tuple[Any, ...]]) -> None:
    inner = getattr(kind, name)

    @functools.wraps(inner)
    def replaced(self: Any, *arguments: Any, **named: Any) -> Any:
        return inner(self, *act(self, arguments, named), **named)

    setattr(kind, name, replaced)


def _give_location(writer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    if LOCATION not in named and not getattr(writer, "_located", False):
        # Spark would make a temporary folder for each start, too.
        writer._jwrite = writer._jwrite.option(LOCATION, _on_rhino(tempfile.mkdtemp(prefix="temporary-")))
    return arguments


def _read_path(reader: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    if not getattr(reader, "_of_state", False):
        return arguments
    if "path" in named:
        named["path"] = _on_rhino(named["path"])
    return (_on_rhino(arguments[0]), *arguments[1:]) if arguments else arguments


def main() -> None:
    """Arguments: the module below pyspark.sql.tests, the file for the outcomes. Standard input: settings, rhino://."""
    module, results = sys.argv[1], Path(sys.argv[2])
    request = json.load(sys.stdin)
    # The wheel has the tests in its zip only, from which executors import all of PySpark.
    packages = Path(pyspark.__file__).parent / "python/lib/pyspark.zip/pyspark/sql"
    pyspark.sql.__path__.append(str(packages))
    use_settings(request["settings"])
    if request["on_rhino"]:
        use_rhino_checkpoints()
    tests = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"pyspark.sql.tests.{module}"))
    with results.open("w") as out:
        tests.run(Recorder(out))
        print(json.dumps({"done": True}), file=out)


if __name__ == "__main__":
    main()
