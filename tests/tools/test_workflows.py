"""The workflows run what the Makefile has, on the versions that pyproject.toml names."""

from __future__ import annotations

import re
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_connector.spark_home import SUPPORTED

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [
    found[1]
    for line in PROJECT["classifiers"]
    if (found := re.fullmatch(r"Programming .* :: (3\.\d+)", line)) is not None
]


def jobs(name: str) -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / ".github/workflows" / name).read_text())
    its: dict[str, Any] = loaded["jobs"]
    return its


def commands() -> list[str]:
    return [
        step["run"]
        for path in WORKFLOWS
        for job in jobs(path.name).values()
        for step in job.get("steps", ())
        if "run" in step
    ]


def test_the_matrix_has_every_supported_python_and_spark() -> None:
    matrix = jobs("ci.yml")["tests"]["strategy"]["matrix"]
    sparks = [*SUPPORTED]
    assert list(product(matrix["python"], matrix["spark"])) == list(product(PYTHONS, sparks))
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_supported_sparks_are_those_that_may_be_installed() -> None:
    (pyspark,) = [line for line in PROJECT["optional-dependencies"]["spark"] if line.startswith("pyspark")]
    first, last = SUPPORTED[0], SUPPORTED[-1]
    assert pyspark == f"pyspark>={first},<4.{int(last.split('.')[1]) + 1}"


def test_the_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    matrix = jobs("nightly.yml")["nightly"]["strategy"]["matrix"]["target"]
    made = [
        word for run in commands() for line in re.findall(r"^make (.*)$", run, re.MULTILINE) for word in line.split()
    ]
    named = {word for word in [*made, *" ".join(matrix).split()] if re.fullmatch(r"[a-z][\w-]+", word)}
    assert {"lint", "test-rest", "test-spark", "nightly-spark", "docs", "release-check"} <= named <= targets


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_host_is_written(path: Path) -> None:
    assert not re.search(r"https?://|index-url|registry", re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.MULTILINE))


def test_a_release_waits_for_everything_and_publishes_only_when_told() -> None:
    release = jobs("release.yml")
    assert release["ci"]["needs"] == "check"
    assert release["publish"]["needs"] == "ci"
    assert release["publish"]["if"] == "vars.PUBLISH == 'true'"
