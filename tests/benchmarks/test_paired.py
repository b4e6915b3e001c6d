"""Paired runs of two trees: their order, and what is concluded from their figures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.registry import Run
from benchmarks.report import __main__ as command
from benchmarks.report import paired, running
from benchmarks.report.running import Result
from benchmarks.report.verdicts import Comparison, Verdict, compare, figures_of
from rhino_core.errors import RhinoError

RUN = Run("replication", 1, ())
OTHER = Path("/other")
Report = dict[str, Any]


def report(mb_per_s: float, p50_ms: float = 3.0, **more: Any) -> Report:
    row = {"subject": "rhino", "hops": 1, "mb_per_s": mb_per_s} | more
    return {"command": "", "throughput": {"rounds": [row], "median": [row]}, "commits": {"idle": {"p50_ms": p50_ms}}}


def compared(make: Callable[[str, int], Report], pairs: int = 6) -> tuple[Comparison | str, list[str]]:
    """The result, and the order of the trees. `make(side, turn)` is what a run reports."""
    order: list[str] = []

    def carry_out(run: Run, out: Path, timeout_s: float, root: Path) -> Result:
        side = "other" if root == OTHER else "this"
        order.append(side)
        return Result("", 1.0, 0, make(side, order.count(side) - 1), "log")

    out = Path("unused")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "mkdir", lambda *_, **__: None)
        return paired.compare_run(RUN, OTHER, out, pairs, time.monotonic() + 60, carry_out), order


def verdicts(ratios: list[float], *, higher: bool = False) -> Verdict:
    (one,) = compare([({"t, ms": ratio}, {"t, ms": 1.0}) for ratio in ratios], ("ms",) if higher else ()).compared
    return one.verdict


def test_the_trees_take_turns_to_be_first() -> None:
    _, order = compared(lambda side, turn: report(100.0), pairs=4)
    assert order == ["this", "other", "other", "this", "this", "other", "other", "this"]


def test_a_difference_that_all_pairs_show_beyond_their_spread_is_one() -> None:
    assert verdicts([1.20, 1.22, 1.18, 1.21, 1.25]) is Verdict.WORSE
    assert verdicts([1.20, 1.22, 1.18, 1.21, 1.25], higher=True) is Verdict.BETTER
    assert verdicts([0.80, 0.82, 0.78, 0.81, 0.75]) is Verdict.BETTER


@pytest.mark.parametrize(
    "ratios",
    [
        [1.20, 1.22, 1.18, 1.21, 0.99],  # one pair points the other way
        [1.01, 1.02, 1.01, 1.02, 1.60],  # the spread is larger than the difference
        [1.0, 1.0, 1.0, 1.0, 1.0],
    ],
)
def test_anything_else_is_noise(ratios: list[float]) -> None:
    assert verdicts(ratios) is Verdict.SAME


def test_few_pairs_decide_nothing() -> None:
    assert verdicts([2.0, 2.0, 2.0, 2.0]) is Verdict.UNDECIDED


def test_swapping_the_trees_swaps_the_ratio() -> None:
    pairs = [({"ms": a}, {"ms": b}) for a, b in ((3.0, 2.0), (5.0, 2.0), (4.0, 4.1), (9.0, 1.0))]
    (one,) = compare(pairs, ()).compared
    (back,) = compare([(b, a) for a, b in pairs], ()).compared
    assert one.ratio == pytest.approx(1 / back.ratio)


def test_figures_are_named_by_table_row_and_column() -> None:
    found = figures_of(report(250.0), ("mb_per_s", "idle p50_ms"))
    assert found == {"throughput: median, rhino, hops 1, mb_per_s": 250.0, "commits: idle, p50_ms": 3.0} or found == {
        "throughput: median, rhino, hops 1, mb_per_s": 250.0,
        "commits, idle p50_ms": 3.0,
    }


def test_a_benchmark_is_judged_by_its_declared_figures() -> None:
    result, _ = compared(lambda side, turn: report(120.0 + turn if side == "this" else 100.0 + turn, 3.0 + turn))
    assert isinstance(result, Comparison)
    judged = {one.figure.rpartition(", ")[2]: one.verdict for one in result.compared}
    assert judged == {"mb_per_s": Verdict.BETTER, "idle p50_ms": Verdict.SAME}


def test_figures_that_one_tree_does_not_report_are_named_and_skipped() -> None:
    result, _ = compared(lambda side, turn: report(100.0, **({"cpu_s_per_gb_hop": 1.0} if side == "this" else {})))
    assert isinstance(result, Comparison)
    assert result.skipped == {
        "throughput: median, rhino, hops 1, cpu_s_per_gb_hop": "not reported by the other tree in every run"
    }
    assert len(result.compared) == 2


def test_a_figure_of_zero_has_no_ratio() -> None:
    result = compare([({"ms": 0.0}, {"ms": 1.0})] * 6, ())
    assert (list(result.compared), list(result.skipped)) == ([], ["ms"])


def test_options_that_the_other_tree_does_not_know_are_named_and_the_next_benchmark_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def carry_out(run: Run, out: Path, timeout_s: float, root: Path) -> Result:
        code = 2 if root == OTHER and run.number == 1 else 0
        return Result("", 1.0, code, None if code else report(100.0), f"{run.name}.log")

    first = paired.compare_run(RUN, OTHER, tmp_path, 5, time.monotonic() + 60, carry_out)
    second = paired.compare_run(Run("replication", 2, ()), OTHER, tmp_path, 5, time.monotonic() + 60, carry_out)
    assert isinstance(first, str)
    assert "other tree: exit code 2" in first
    assert "replication-1.log" in first
    assert isinstance(second, Comparison)
    assert paired.skipped_of({"replication-1": first, "replication-2": second}) == [f"replication-1: {first}"]
    assert {row["run"] for row in paired.rows_of({"replication-1": first, "replication-2": second})} == {
        "replication-2"
    }


def test_a_revision_has_its_own_files_which_are_gone_afterwards() -> None:
    with paired.worktree("HEAD") as tree:
        assert (tree / "benchmarks/report/__main__.py").is_file()
        assert tree != running.ROOT
    assert not tree.exists()


def test_an_unknown_revision_is_named() -> None:
    with pytest.raises(RhinoError, match="no-such-revision"), paired.worktree("no-such-revision"):
        pass


def test_the_command_compares_and_fails_when_a_figure_is_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"this": 90.0, "other": 100.0}

    def fake(run: Run, out: Path, timeout_s: float, root: Path) -> Result:
        side = "this" if root == running.ROOT else "other"
        return Result("", 1.0, 0, report(speeds[side]), "log")

    monkeypatch.setattr(paired.compare_run, "__defaults__", (fake,))
    monkeypatch.setattr(paired, "build", lambda tree: None)
    arguments = ["replication", "--against", "HEAD", "--out", str(tmp_path)]
    assert command.main(arguments) == 1
    rows = {
        row["figure"].rpartition(", ")[2]: row
        for row in json.loads((tmp_path / "comparison.json").read_text())["comparison"]
    }
    assert rows["mb_per_s"]["verdict"] == "worse"
    assert rows["mb_per_s"]["ratio"] == pytest.approx(0.9)
    speeds["this"] = 110.0
    assert command.main(arguments) == 0


def test_every_benchmark_declares_figures_to_judge() -> None:
    for name in registry.found():
        lower, higher = registry.judged(name)
        assert lower + higher, name
        assert not set(lower) & set(higher)
