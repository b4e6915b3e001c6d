"""Measurements that do not end say what they were at."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

import benchmarks
import workloads
from benchmarks.cells import Cells, Say, parser
from benchmarks.command import main
from benchmarks.stateful import Load
from rhino_core.errors import RhinoError


@dataclass(frozen=True)
class Result:
    seconds: float


@pytest.mark.parametrize("error", [RhinoError("no batch"), KeyboardInterrupt()])
def test_a_measurement_that_is_broken_off_says_where(
    error: BaseException, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(subject: str, load: Load, folder: Path, say: Say) -> list[str]:
        say("building the state, batch 17")
        raise error

    arguments = parser("benchmarks.x", None, ("a",), ("a",)).parse_args(["--sizes", "0.001", "--dir", str(tmp_path)])
    with pytest.raises(type(error)):
        Cells(arguments, measure, lambda results: [], str).run()
    assert "a, 0.001 GB: broken off at: building the state, batch 17" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_failed_measurement_ends_the_command_with_1_and_leaves_reason_and_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(subject: str, load: Load, folder: Path, say: Say) -> list[Result]:
        (folder / "logs").mkdir(parents=True)
        (folder / "logs" / "manager.log").write_text("why")
        (folder / "state").write_text("gigabytes")
        say("waiting for the first batch")
        if subject == "b":
            raise RhinoError("no batch within 90 s")
        return [Result(1.0)]

    def run() -> None:
        given = ["--sizes", "0.001", "--rounds", "1", "--dir", str(tmp_path), "--json", str(tmp_path / "report.json")]
        arguments = parser("benchmarks.x", None, ("a", "b"), ("a", "b")).parse_args(given)
        Cells(arguments, measure, lambda results: [{"count": len(results)}], str).run()

    assert main(run) == 1
    assert "no batch within 90 s" in capsys.readouterr().err
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["results"] == [{"seconds": 1.0}]
    expected = {"cell": "b, 0.001 GB", "at": "waiting for the first batch", "reason": "no batch within 90 s"}
    assert report["failed"] == expected
    (kept,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert [path.name for path in kept.rglob("*")] == ["manager.log"]


@pytest.mark.parametrize("rounds", ["0", "-1", "x"])
def test_no_rounds_are_no_measurement(rounds: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parser("benchmarks.x", None, ("a",), ("a",)).parse_args(["--rounds", rounds])
    assert ended.value.code == 2


def test_a_measurement_without_a_result_has_failed(tmp_path: Path) -> None:
    arguments = parser("benchmarks.x", None, ("a",), ("a",)).parse_args(["--sizes", "0.001", "--dir", str(tmp_path)])
    with pytest.raises(RhinoError, match="nothing was measured"):
        Cells(arguments, lambda *_: [], lambda results: [], str).run()


def test_every_benchmark_ends_with_the_code_of_its_main() -> None:
    tops = (Path(package.__file__ or "").parent for package in (benchmarks, workloads))
    modules = [path for top in tops for path in top.glob("*/__main__.py")]
    assert len(modules) >= 10
    for module in modules:
        last = ast.parse(module.read_text()).body[-1]
        assert isinstance(last, ast.If), module
        calls = [node for node in ast.walk(last) if isinstance(node, ast.Call)]
        assert any(ast.unparse(call.func) == "sys.exit" and "main(" in ast.unparse(call) for call in calls), module
