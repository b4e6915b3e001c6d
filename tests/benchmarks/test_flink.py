"""The Flink peer without Flink: where it is looked for, what its log tells, and a skip that says why."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from benchmarks.flink import __main__ as command
from benchmarks.flink import distribution
from benchmarks.flink.distribution import find_flink, version
from benchmarks.flink.job import statements
from benchmarks.flink.log import Checkpoint, Restart, Switch, parse, restart_after
from benchmarks.flink.loss import Recovery
from benchmarks.flink.summary import summarise, table
from benchmarks.stateful import Load
from rhino.errors import InvalidSettingError


def _distribution(home: Path) -> Path:
    (home / "lib").mkdir(parents=True)
    (home / "lib" / "flink-dist-2.3.0.jar").touch()
    return home


def _no_package(name: str) -> None:
    raise importlib.metadata.PackageNotFoundError(name)


def test_a_named_distribution_goes_before_flink_home(tmp_path: Path) -> None:
    named, home = _distribution(tmp_path / "named"), _distribution(tmp_path / "home")
    assert find_flink(named, {"FLINK_HOME": str(home)}) == named / "lib"
    assert find_flink(None, {"FLINK_HOME": str(home)}) == home / "lib"
    assert version(home / "lib") == "2.3.0"


def test_a_folder_without_flink_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=rf"--flink = '{tmp_path}': there is no lib/flink-dist-.*pip install"):
        find_flink(tmp_path, {})
    with pytest.raises(InvalidSettingError, match="FLINK_HOME = "):
        find_flink(None, {"FLINK_HOME": str(tmp_path)})


def test_without_flink_the_benchmark_says_so_and_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLINK_HOME", raising=False)
    monkeypatch.setattr(distribution, "distribution", _no_package)
    monkeypatch.setattr(sys, "argv", ["benchmarks.flink", "--json", str(tmp_path / "flink.json")])
    assert command.main(command._run) == 0
    assert "skipped: there is no Apache Flink here; `pip install apache-flink-libraries`" in capsys.readouterr().err
    assert json.loads((tmp_path / "flink.json").read_text())["flink"][0]["outcome"].startswith("skipped")


def test_the_state_of_the_query_is_as_large_as_the_other_subject_s() -> None:
    load = Load(250_000_000)
    building = statements(load)[0]
    assert "'fields.p.length' = '1024'" in building
    assert f"'fields.k.end' = '{load.keys - 1}'" in building
    assert 0.7 < load.keys * 1024 / load.state_bytes < 1.3  # the other subject builds in whole batches


def test_ratios_are_to_rhino_s_time_until_all_tasks_run() -> None:
    rhino = Recovery("rhino", 1_000, 0, 100.0, 500.0, 1500.0)
    flink = Recovery("flink", 1_000, 1_100, 200.0, 2000.0, 2900.0)
    rows = summarise([rhino, flink, rhino, flink])
    assert [(row["subject"], row["runs"], row["ratio"]) for row in rows] == [("flink", 2, 4.0), ("rhino", 2, 1.0)]
    assert table(rows).row_count == 2
