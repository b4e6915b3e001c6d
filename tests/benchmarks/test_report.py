"""The tables of every benchmark's report are found by their shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.report import __main__ as command
from benchmarks.report import shapes

BATCHES = [{"batch_id": i, "started_ms": 1000 + 500 * i, "duration_ms": 400 + i} for i in range(10)]
REPORT: dict[str, Any] = {
    "command": "python -m benchmarks.x",
    "machine": {"cores": 2},
    "trials": [
        {
            "job": "nbq8",
            "events": 60_000,
            "missing": 0,
            "latency": {"p50_ms": 3.25},
            "faults": [{"kind": "kill", "what": "<worker>", "started_ms": 2000, "ended_ms": 3500}],
            "batches": BATCHES,
        }
    ],
    "throughput": {"median": [{"subject": "rhino", "hops": 1, "mb_per_s": 250.0}, {"subject": "cp", "mb_per_s": 900}]},
    "recovery": [
        {"subject": who, "state_bytes": size, "recovery_s": size * slope}
        for who, slope in (("rhino", 1), ("stock", 3))
        for size in (1, 2, 4)
    ],
    "rows": [{"setting": "r1", "load": "nbq8", "provider": who, "p50_ms": 700.0} for who in ("Spark's own", "rhino")],
}


def test_tables_are_rows_of_plain_values() -> None:
    found = {table.title: table for table in shapes.tables(REPORT)}
    assert list(found) == ["trials", "throughput: median", "recovery", "rows"]
    assert found["trials"].rows == [{"job": "nbq8", "events": 60_000, "missing": 0, "latency p50_ms": 3.25}]


def test_every_benchmark_is_found_and_lists_a_quick_run() -> None:
    with_spark = {"airline", "handover", "keycount", "mapquery", "nexmark", "overhead", "recovery"}
    assert with_spark | {"modify", "replication"} <= set(registry.found())
    assert all(registry.quick_runs(name) for name in registry.found())


def test_a_failed_benchmark_fails_the_whole_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = (registry.Run("mapquery", 1, ("--rate", "0")),)
    monkeypatch.setattr(registry, "quick_runs", lambda name: runs)
    assert command.main(["mapquery", "--out", str(tmp_path)]) == 1
    assert "FAILED with code 2" in capsys.readouterr().err
    assert "rate = 0" in (tmp_path / "mapquery-1.log").read_text()


def test_resume_runs_only_what_has_not_gone_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = (registry.Run("mapquery", 1, ("--rate", "0")), registry.Run("mapquery", 2, ("--help",)))
    monkeypatch.setattr(registry, "quick_runs", lambda name: runs)
    assert command.main(["mapquery", "--out", str(tmp_path)]) == 1
    for log in ("mapquery-1.log", "mapquery-2.log"):
        (tmp_path / log).write_text("not run again")
    assert command.main(["mapquery", "--out", str(tmp_path), "--resume"]) == 1
    assert "rate = 0" in (tmp_path / "mapquery-1.log").read_text()
    assert (tmp_path / "mapquery-2.log").read_text() == "not run again"
