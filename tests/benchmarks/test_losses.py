"""Figures of the benchmark of losses."""

from __future__ import annotations

import pytest

from benchmarks.losses.__main__ import rows_of, summary_of
from examples.survive.scene import Happened, Story
from rhino.testing.query_watch import RunError
from workloads.nexmark.output import Verdict

EXACT = Verdict(100, 0, 0)


def story(verdict: Verdict = EXACT) -> Story:
    logged = [float(second) for second in range(100)] + [104.0]
    losses = [Happened(7.0, "a", 1.0), Happened(8.0, "b", 4.0), Happened(9.0, "a", 3.0)]
    return Story(verdict, logged, losses)


def test_each_kind_of_loss_has_its_median_and_its_longest_time() -> None:
    assert rows_of(story()) == [
        {"loss": "a", "times": 2, "median_s": 2.0, "longest_s": 3.0},
        {"loss": "b", "times": 1, "median_s": 4.0, "longest_s": 4.0},
    ]
    assert summary_of(story()) == {"batches": 101, "rows": 100, "median_s": 1.0, "p99_s": 5.0}


@pytest.mark.parametrize("wrong", [Verdict(100, 1, 0), Verdict(100, 0, 1), Verdict(0, 0, 0)])
def test_a_wrong_output_has_no_figures(wrong: Verdict) -> None:
    with pytest.raises(RunError, match="the output is wrong"):
        rows_of(story(wrong))
