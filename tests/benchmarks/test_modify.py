"""The figures of the benchmark that changes a running query."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.modify import __main__ as command
from benchmarks.modify.changes import Changed, _changed
from benchmarks.modify.idle import IdleSlice, idle_of, idle_table, rule_times
from benchmarks.modify.loads import OUTPUT, counting
from benchmarks.modify.summary import changes_of, table
from benchmarks.report.record import record_of
from query_evolution.modify.ledger import State, View
from query_evolution.modify.record import Change, Kind, Record
from rhino.testing.query_watch import Batch
from workloads.machine import machine

BATCHES = [Batch(number, 1000 * number, 400 if number != 20 else 440) for number in range(30)]


def changed(called_ms: int) -> Changed:
    record = Record(1, Change(Kind.FILTER, "bids", condition="true"), "me", 0)
    return _changed("nbq5", 1, called_ms, View(record, State.IN_FORCE, 20), BATCHES)


def test_a_change_is_measured_from_the_call_to_its_first_batch() -> None:
    found = changed(19_700)
    assert (found.wait_ms, found.done_ms, found.switch_ms, found.steady_ms) == (300, 740, 440, 400)
    assert found.pause_ms == 600, "batch 19 ends at 19 400, and batch 20 begins at 20 000"
    assert found.ratio == pytest.approx(1.1)
    assert found.in_time
    assert changed(19_400).in_time
    assert not changed(19_399).in_time, "one batch and 0.2 s"
    assert replace(changed(18_800), every_ms=1000).in_time
    assert not replace(changed(18_799), every_ms=1000).in_time, "the time from one batch to the next, and 0.2 s"
    assert [changed(ms).skipped for ms in (19_001, 19_000, 18_999, 17_500)] == [0, 1, 1, 2], (
        "batches begin at 18 000, ..."
    )


def test_medians_of_the_changes_of_a_load() -> None:
    (row,) = changes_of([changed(19_700), changed(18_300), changed(19_600)])
    assert (row["changes"], row["wait_ms"], row["longest_wait_ms"], row["in_time"]) == (3, 400, 1700, 2)
    assert (row["with_the_next"], row["before_ratio"]) == (2, 1.0)
    slow = [replace(changed(19_700), switch_ms=ms) for ms in (360, 400, 440, 480, 1200)]
    (row,) = changes_of(slow)
    assert [row[name] for name in ("lower_ratio", "ratio", "upper_ratio", "highest_ratio")] == pytest.approx(
        [1.0, 1.1, 1.2, 3.0]
    )
    assert table(changes_of(slow)).row_count == 1
    assert changes_of(slow[:1])[0]["upper_ratio"] == pytest.approx(0.9)


def test_idle_slices_are_compared_in_pairs() -> None:
    found = [IdleSlice("nbq5", False, 1, (100, 200, 300), 0.0, 0.0), IdleSlice("nbq5", True, 1, (202,), 60.0, 2.0)]
    found += [IdleSlice("nbq5", True, 2, (400,), 40.0, 4.0), IdleSlice("nbq5", False, 2, (400,), 0.0, 0.0)]
    (row,) = idle_of(found)
    assert (row["slices"], row["absent_ms"], row["idle_ms"], row["lowest"], row["highest"]) == (2, 300, 301, 1.0, 1.01)
    assert (row["cost_ratio"], row["rule_us"], row["poll_ms_per_s"]) == (pytest.approx(1.005), 50, 3)
    assert idle_table([row]).row_count == 1


def test_the_times_of_the_rule_are_read_from_what_spark_says() -> None:
    said = """
Rule                                    Effective Time / Total Time    Effective Runs / Total Runs

rhino.spark.modify.ModifyRule           0 / 52500                      0 / 3
org.apache.spark.sql.Other              7 / 9                          1 / 4
"""
    assert rule_times(said) == (52_500, 3)
    assert rule_times("") == (0, 0)


def test_all_versions_of_the_map_function_go_on_counting() -> None:
    class Held:
        exists = False
        get: tuple[int, ...] = ()

        def update(self, value: tuple[int, ...]) -> None:
            self.exists, self.get = True, value

    state, columns = Held(), [field.split()[0] for field in OUTPUT.split(", ")]
    for version, expected in ((0, [1, 2]), (7, [3, 4])):
        frame = pd.DataFrame({"value": [5, 3], "instance": [1, 1]})
        (made,) = counting(version)((1,), iter([frame]), state)
        assert list(made.columns) == columns
        assert list(made["ordinal"]) == expected


def test_its_report_can_become_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    monkeypatch.setattr("sys.argv", ["modify", "--changes", "1", "--json", str(path)])
    command._write(path, machine(), command.Found([changed(19_700)]))
    made = record_of(json.loads(path.read_text()), "modify", "nbq5", [])
    assert (made.benchmark, made.commands) == ("modify", ["python -m benchmarks.modify --changes 1"])
