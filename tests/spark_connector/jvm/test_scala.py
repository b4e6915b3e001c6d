"""Runs the Scala tests of the engine and of query_evolution. One compilation and one JVM serve all of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from rhino_core import failpoints
from spark_connector.conf import recovery_conf, state_conf
from spark_connector.jar import compile_scala, ensure_jar
from spark_connector.java import find_java
from spark_connector.spark_home import spark_jars
from tests.spark_connector.support.scala_tests import scala_tests

TIMEOUT_S = 120
STOPS = 4


def names() -> list[tuple[str, str]]:
    """Suite and test, as they are written in the sources."""
    return [
        (path.stem, name)
        for path in scala_tests()
        if path.stem.endswith("Suite")
        for name in re.findall(r'^  test\("([^"]+)"\)', path.read_text(), re.MULTILINE)
    ]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs a class of the tests."""
    _, jars = spark_jars()
    jar = ensure_jar()
    folder = tmp_path_factory.mktemp("scala")
    classes, temporary = folder / "classes", folder / "tmp"
    temporary.mkdir()
    compile_scala(jars, scala_tests(), classes, classpath=[jar])
    on_path = os.pathsep.join([str(classes), str(jar), f"{jars}/*"])
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={temporary}"]
    return [str(find_java()), *options, "-cp", on_path]


@pytest.fixture(scope="module")
def outcome(java: list[str]) -> list[dict]:
    """The JSON objects that the JVM prints."""
    command = [*java, "rhino.spark.Suite"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(("suite", "name"), names(), ids=[f"{suite}: {name}" for suite, name in names()])
def test_scala(suite: str, name: str, outcome: list[dict]) -> None:
    (found,) = [line for line in outcome if (line.get("suite"), line.get("test")) == (suite, name)]
    assert "failure" not in found or found["failure"] is None, found["failure"]


def test_every_test_is_found(outcome: list[dict]) -> None:
    assert {(line["suite"], line["test"]) for line in outcome if "test" in line} == {*names()}
    assert len(names()) == len([line for line in outcome if "test" in line])


def test_the_plugin_sets_what_rhino_conf_sets(outcome: list[dict]) -> None:
    assert outcome[-1]["required"] == state_conf()
    exclusion = {key: value for key, value in recovery_conf().items() if "excludeOnFailure" in key}
    assert outcome[-1]["exclusion"] == exclusion
    assert len(exclusion) == 6


def test_who_comes_to_a_stop_does_not_go_on_before_the_process_is_stopped(java: list[str]) -> None:
    """Also when the first thread of the process, which the kernel asks first to handle a signal, gets little time."""
    assert [went_on(java) for _ in range(STOPS)] == [b""] * STOPS


@contextlib.contextmanager
def busy_processors() -> Iterator[None]:
    """Each has more to do than it can."""
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    busy = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        for process in busy:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in busy:
            process.kill()
            process.communicate()


def went_on(java: list[str]) -> bytes:
    """What a process writes after a failpoint, until it is stopped there."""
    environment = {**os.environ, failpoints.VARIABLE: "modification.plan.before=stop"}
    with subprocess.Popen(
        [*java, "rhino.spark.modify.StopAtPoint"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))  # of the first thread only
            os.set_blocking(process.stdout.fileno(), False)
            with busy_processors():
                process.stdin.write(b"\n")
                process.stdin.flush()
                deadline = time.monotonic() + TIMEOUT_S
                while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
                    assert time.monotonic() < deadline, "it does not stop"
                    time.sleep(0.005)
            return process.stdout.read() or b""
        finally:
            process.kill()
