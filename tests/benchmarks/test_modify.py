"""The figures of the benchmarks that change a running query: modify, restart, branch, shadow and restructure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import registry
from benchmarks.branch.__main__ import Branched
from benchmarks.branch.__main__ import summarise as branches_of
from benchmarks.branch.__main__ import table as branch_table
from benchmarks.modify.changes import Changed, Slice, _changed
from benchmarks.modify.idle import IdleSlice, idle_of, idle_table, rule_times
from benchmarks.modify.loads import OUTPUT, counting
from benchmarks.modify.summary import changes_of, costs_of, draw, tables
from benchmarks.restart.__main__ import summarise as restarts_of
from benchmarks.restart.__main__ import table as restart_table
from benchmarks.restart.changes import Change as Restarted
from benchmarks.restructure.__main__ import Change as Restructuring
from benchmarks.restructure.__main__ import summarise as restructurings_of
from benchmarks.restructure.__main__ import table as restructuring_table
from benchmarks.shadow.__main__ import summarise as shadows_of
from benchmarks.shadow.__main__ import table as shadow_table
from benchmarks.shadow.live import Beside, Made, costs, lateness
from rhino.testing.query_watch import Batch
from spark_connector.modify.ledger import State, View
from spark_connector.modify.record import Change, Kind, Record

BATCHES = [Batch(number, 1000 * number, 400 if number != 20 else 440) for number in range(30)]


def changed(called_ms: int) -> Changed:
    record = Record(1, Change(Kind.FILTER, "bids", condition="true"), "me", 0)
    return _changed("nbq5", 1, called_ms, View(record, State.IN_FORCE, 20), BATCHES)


def test_a_change_is_measured_from_the_call_to_its_first_batch() -> None:
    found = changed(19_700)
    assert (found.wait_ms, found.done_ms, found.switch_ms, found.steady_ms) == (300, 740, 440, 400)
    assert (found.pause_ms, found.after_ms) == (600, 400), "batch 19 ends at 19 400, and batch 20 begins at 20 000"
    assert found.ratio == found.after_ratio == pytest.approx(1.1)
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
    assert [table.row_count for table in tables(changes_of(slow), [])] == [1]
    assert changes_of(slow[:1])[0]["upper_ratio"] == pytest.approx(0.9)


def test_slices_are_compared_in_pairs() -> None:
    found = [Slice("nbq5", False, 1, (100, 200, 300)), Slice("nbq5", True, 1, (220,))]
    found += [Slice("nbq5", True, 2, (400,)), Slice("nbq5", False, 2, (400,))]
    (row,) = costs_of(found)
    assert (row["slices"], row["lowest"], row["highest"]) == (2, 1.0, 1.1)
    assert row["cost_ratio"] == pytest.approx(1.05)
    assert [table.row_count for table in tables([], [row])] == [0, 1]


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


def test_the_timeline_is_drawn(tmp_path: Path) -> None:
    draw(tmp_path / "p.png", {"nbq5": BATCHES}, [changed(19_700)])
    assert (tmp_path / "p.png").stat().st_size > 10_000


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


def test_what_the_process_of_a_shadow_says_of_its_branch_is_read(tmp_path: Path) -> None:
    target = tmp_path / "shadow-2000-1"
    assert Made.read(target) is None
    Made(17, "9a6e").write(target)
    assert Made.read(target) == Made(17, "9a6e")


def test_branches_are_summed_up_by_size() -> None:
    results = [
        Branched(10**9, number, ms, 90, 10**9, 5, 400, 440, 400) for number, ms in ((1, 300), (2, 900), (3, 500))
    ]
    (row,) = branches_of(results)
    assert (row["branch_ms"], row["longest_ms"], row["branches"]) == (500, 900, 3)
    assert row["during_ratio"] == pytest.approx(1.1)
    assert branch_table([row]).row_count == 1
    assert json.dumps(row)


def test_all_are_found_with_quick_runs() -> None:
    names = {"modify", "restart", "branch", "shadow", "restructure"}
    assert names <= set(registry.found())
    assert all(registry.quick_runs(name) for name in names)


def test_a_shadow_is_compared_with_the_batches_around_it() -> None:
    """Batches begin at 0, 1000, ... The process is there from 8.5 to 25.2 s, and the shadow runs from 12 to 22.5 s."""
    done = [Batch(n, 1000 * n, 300 if 12 <= n <= 22 else 900 if 8 <= n <= 25 else 200) for n in range(60)]
    assert costs(done, (8500, 25_200), (12_100, 22_500)) == (200, 300)
    slow = [replace(batch, duration_ms=250) if batch.batch_id > 35 else batch for batch in done]
    assert costs(slow, (8500, 25_200), (12_100, 22_500)) == (200, 300), "ten batches after it, and not all"


def test_how_late_a_shadow_is() -> None:
    done = [Batch(number, 1000 * number, 400) for number in range(20)]
    assert lateness(done, 3, [9400.0, 11_400.0, 13_400.0]) == (2000, 6000, 8000, 8)


def test_medians_of_shadows() -> None:
    found = [Beside(10**9, 500, n, 200, 200 * n, 5, 2000, 9000, 17_000, 20) for n in (1, 2, 3)]
    found.append(Beside(10**9, 4000, 1, 200, 220, 5, 2000, 9000, 3000, 0))
    often, seldom = shadows_of(found)
    assert (often["shadows"], often["ratio"], often["highest_ratio"], often["growth_ms"]) == (3, 2, 3, 2000)
    assert (seldom["interval_ms"], seldom["growth_ms"], seldom["behind"]) == (4000, -1500, 0)
    assert shadow_table([often, seldom]).row_count == 2
    assert json.dumps([often, seldom])


def test_medians_of_restructured_queries() -> None:
    found = [Restructuring(10**9, n, 400, 900, 300, 10**8, pause, 700) for n, pause in enumerate((1500, 2500, 1000), 1)]
    (row,) = restructurings_of(found)
    assert (row["changes"], row["pause_ms"], row["longest_ms"], row["back_ms"]) == (3, 1500, 2500, 700)
    assert restructuring_table([row]).row_count == 1


def test_medians_of_restarts() -> None:
    found = [Restarted(10**9, n, 400, 5000, 90, pause, 800) for n, pause in enumerate((1500, 2500, 1000), 1)]
    (row,) = restarts_of(found)
    assert (row["changes"], row["pause_ms"], row["longest_ms"], row["back_ms"]) == (3, 1500, 2500, 800)
    assert restart_table([row]).row_count == 1
    assert registry.quick_runs("restart")
