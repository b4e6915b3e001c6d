"""Runs the Scala tests in `scala/`: what needs no cluster. One compilation and one JVM serve all of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from spark_connector.conf import recovery_conf, state_conf
from spark_connector.jar import compile_scala, ensure_jar
from spark_connector.java import find_java
from spark_connector.spark_home import spark_jars

SUITES = Path(__file__).parent / "scala"
TIMEOUT_S = 120


def names() -> list[tuple[str, str]]:
    """Suite and test, as they are written in the sources."""
    return [
        (path.stem, name)
        for path in sorted(SUITES.glob("*Suite.scala"))
        for name in re.findall(r'^  test\("([^"]+)"\)', path.read_text(), re.MULTILINE)
    ]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The JSON objects that the JVM prints."""
    _, jars = spark_jars()
    jar = ensure_jar()
    classes = tmp_path_factory.mktemp("scala") / "classes"
    compile_scala(jars, sorted(SUITES.glob("*.scala")), classes, classpath=[jar])
    on_path = os.pathsep.join([str(classes), str(jar), f"{jars}/*"])
    command = [str(find_java()), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", on_path, "rhino.spark.Suite"]
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
