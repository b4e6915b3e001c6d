"""The lag of sources: when a query is catching up, and what follows from it."""

from __future__ import annotations

import dataclasses

import pytest

from handover_manager.adapt.lag import BEHIND, KEPT, Lags
from rhino_model.decisions import Outcome
from rhino_model.loads import SourceLag
from tests.handover_manager.support.adaptation import skewed
from workloads.adaptation.world import ACT, World

ENOUGH = 60  # batches in which adaptation can see, act and verify


def offsets(behind: float, read: float = 100.0, source: str = "topic") -> tuple[SourceLag, ...]:
    return (SourceLag(source, "offsets", behind, read),)


def files(behind: float) -> tuple[SourceLag, ...]:
    """This source does not say how much a batch reads."""
    return (SourceLag("folder", "files", behind),)


def backlog(lags: Lags) -> str:
    return lags.backlog


def test_a_source_without_a_lag_says_nothing() -> None:
    lags = Lags()
    for _ in range(5):
        lags.add([(), ()])
    assert (lags.backlog, lags.batches, lags.newest) == ("", 0.0, ())


def test_a_query_is_catching_up_from_some_batches_until_about_one() -> None:
    lags = Lags()
    lags.add([offsets(0), offsets(0)])
    lags.add([offsets(0), offsets(100 * BEHIND)])
    assert backlog(lags) == ""
    lags.add([offsets(900), offsets(800)])
    assert backlog(lags) == "source topic is 800 offsets behind, or 8.0 usual batches"
    assert lags.batches == 8.0
    lags.add([offsets(300), offsets(200)])
    assert backlog(lags), "the rest is still read"
    lags.add([offsets(100), offsets(50)])
    assert not backlog(lags)


def test_what_counts_is_a_usual_batch_and_not_one_of_the_backlog() -> None:
    lags = Lags()
    for _ in range(3):
        lags.add([offsets(0)])
    lags.add([offsets(600, read=5000)])
    assert "6.0 usual batches" in backlog(lags)


def test_a_query_that_begins_with_a_backlog_is_catching_up() -> None:
    lags = Lags()
    lags.add([offsets(10_000), offsets(9_900)])
    assert "99.0 usual batches" in backlog(lags)


@pytest.mark.parametrize(
    ("ends", "growing"), [((1, 2, 3), True), ((3, 3, 3), False), ((9, 5, 8), False), ((10, 11, 11.5), False)]
)
def test_a_lag_that_grows_counts_if_nobody_knows_how_much_a_batch_reads(ends: tuple[float, ...], growing: bool) -> None:
    lags = Lags()
    for behind in ends:
        lags.add([files(behind)])
    assert bool(backlog(lags)) is growing
    assert lags.batches == 0.0


def test_a_lag_that_grows_counts_sooner() -> None:
    lags = Lags()
    for behind in (0, 80, 160, 240):
        lags.add([offsets(behind)])
    assert backlog(lags)


def test_of_two_sources_the_one_that_is_behind_is_named() -> None:
    lags = Lags()
    lags.add([(*offsets(0), *offsets(5_000, source="other"))])
    assert backlog(lags) == "source other is 5000 offsets behind, or 50.0 usual batches"


def test_a_query_that_is_always_behind_is_not_catching_up() -> None:
    lags = Lags()
    for _ in range(KEPT // 2):
        lags.add([offsets(5_000)])
        assert backlog(lags)
    lags.add([offsets(5_000)])
    assert not backlog(lags)
    assert lags.batches == 50.0


def test_nothing_moves_while_a_backlog_is_read_in_batches_of_the_usual_size() -> None:
    made = World(4, 16, skewed, ACT)
    made.lags = lambda at: offsets(10_000)
    made.run(ENOUGH)
    assert not made.moved
    assert made.decisions()[-1].outcome is Outcome.CATCHING_UP
    assert "source topic is 10000 offsets behind, or 100.0 usual batches" in made.decisions()[-1].why
    made.lags = lambda at: offsets(0)
    made.run(ENOUGH)
    assert made.imbalance <= 1 + ACT.band


def test_an_uneven_query_that_never_keeps_up_is_balanced_at_last() -> None:
    made = World(4, 16, skewed, ACT)
    made.lags = lambda at: offsets(10_000 + 100 * at)
    made.run(2 * ENOUGH)
    assert made.imbalance <= 1 + ACT.band


def wanted(made: World) -> tuple[int | None, str]:
    core = made.play.core
    found = core.adaptation.scaling.wanted("job-a", core.seen_at)
    return found.workers, found.why


def test_a_backlog_wants_more_workers_than_the_usual_load() -> None:
    made = World(4, 16, lambda partition, at: 0.75, dataclasses.replace(ACT, catch_up_s=300.0))
    made.trigger_s = 5.0
    made.run(ENOUGH)
    assert wanted(made)[0] == 4
    made.lags = lambda at: offsets(5_000)
    made.run(8)
    workers, why = wanted(made)
    assert workers == 5
    assert "50.0 usual batches behind: 5 work that off in 5 min, later 4 suffice" in why
    assert made.play.core.adaptation.scaling.wanted("job-a", made.play.core.seen_at).lags == offsets(5_000)


def test_rows_beyond_the_usual_without_a_lag_are_still_no_reason_for_more_workers() -> None:
    made = World(4, 16, lambda partition, at: 0.75, ACT)
    made.trigger_s = 5.0
    made.run(ENOUGH)
    before = wanted(made)
    made.rows, made.load = lambda at: 9_000, lambda partition, at: 3.0
    made.run(8)
    assert wanted(made) == before
