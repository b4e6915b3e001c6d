"""The load and the figures of benchmarks.balance."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from benchmarks import registry
from benchmarks.balance import query, step
from benchmarks.balance.observed import Heard, Window, balanced_for_good, windows
from benchmarks.balance.query import Load
from benchmarks.balance.running import Seen
from rhino import BatchLoad
from rhino.testing.query_watch import Batch
from rhino_model.loads import VirtualNodeLoad
from workloads.nexmark.output import Verdict
from workloads.nexmark.settings import FIRST_ID

TRIGGER_S = 2.0
EXACT = Verdict(rows=9, missing=0, extra=0)


def heard(batch: int, *tasks: tuple[str, float], workers: int = 2) -> Heard:
    """Each task is the worker of a virtual node, and its seconds."""
    nodes = tuple(VirtualNodeLoad(f"0/{n}", worker, seconds, None) for n, (worker, seconds) in enumerate(tasks))
    load = BatchLoad("j", "balance", "r", batch, 1, 100, 1.0, TRIGGER_S, nodes, workers, 0)
    return Heard(1000 * batch + 900, load)


def seen(loads: list[Heard], durations_ms: list[int], verdict: Verdict = EXACT) -> Seen:
    batches = tuple(Batch(number, 1000 * number, ms) for number, ms in enumerate(durations_ms))
    return Seen(tuple(loads), batches, (), (), verdict)


def sellers(load: Load) -> tuple[Counter[int], Counter[int]]:
    """How many auctions each seller has before Zipf's law counts, and after."""
    found = Counter[int](), Counter[int]()
    with duckdb.connect() as db:
        ids = f"select unnest(range({FIRST_ID}, {FIRST_ID + load.auctions})) as id"
        for auction, seller in db.execute(f"select id, {query.seller(load)} from ({ids})").fetchall():
            found[auction >= load.zipf_id][seller - FIRST_ID] += 1
    return found


def test_sellers_are_even_and_then_follow_zipfs_law() -> None:
    load = Load((500,) * 40 + (750,) * 40, 2, zipf_from=41)
    assert load.zipf_id == FIRST_ID + 20_000
    even, zipf = sellers(load)
    assert set(even) <= set(range(query.PERSONS))
    assert max(even.values()) < 4 * even.total() / query.PERSONS
    assert set(zipf) <= set(range(1, 2**query.OCTAVES))
    for number in (1, 2, 4, 8):
        assert zipf[number] / zipf.total() == pytest.approx(1 / query.OCTAVES / number, rel=0.1)


def test_the_balance_of_a_window_is_of_the_time_of_the_workers() -> None:
    uneven, even = (("a", 3.0), ("b", 1.0)), (("a", 1.0), ("a", 1.0), ("b", 2.0))
    found = windows([heard(1, *uneven), heard(2, *uneven), heard(3, *even), heard(4, *even)], size=2)
    assert found == [Window(1, 2900, 1.5, 1.5), Window(2, 3900, 1.25), Window(3, 4900, 1.0)]
    (empty_worker,) = windows([heard(1, *even, workers=4)], size=1)
    assert (empty_worker.max_over_mean, empty_worker.least) == (2.0, 2.0)
    (hot_node,) = windows([heard(1, ("a", 3.0), ("a", 1.0), ("b", 1.0))], size=1)
    assert (hot_node.max_over_mean, hot_node.least) == (1.6, 1.2), "the hot one alone is above the mean"


def test_balanced_for_good_is_what_adaptation_would_not_change() -> None:
    def ratios(*above: int) -> list[Window]:
        return [Window(number, number, 1.3 if number in above else 1.2) for number in range(40)]

    assert balanced_for_good(ratios(), 1.2) == ratios()[0]
    assert balanced_for_good(ratios(0, 1), 1.2) == ratios()[2]
    assert balanced_for_good(ratios(20, 24), 1.2) == ratios()[0], "two of four windows that follow each other"
    assert balanced_for_good(ratios(20, 24, 28), 1.2) == ratios()[21], "three of four"
    assert balanced_for_good(ratios(20, 24, 32), 1.2) == ratios()[21], "they need not be neighbours"
    assert balanced_for_good(ratios(20, 24, 36), 1.2) == ratios()[0], "three of five"
    assert balanced_for_good(ratios(39), 1.2) == ratios()[0]
    assert balanced_for_good(ratios(*range(40)), 1.2) is None
    assert balanced_for_good([], 1.2) is None


def test_the_step_is_judged_from_its_first_batch() -> None:
    load = step.Sizes(100, 2, before=4, after=12).load()
    assert (load.sizes[3:5], load.zipf_from, load.batches) == ((100, 150), 5, 17)
    even, uneven = (("a", 1.0), ("b", 1.0)), (("a", 3.0), ("b", 1.0))
    loads = [heard(number, *(uneven if 5 <= number < 10 else even)) for number in range(1, 17)]
    found = step.figures(seen(loads, [2500] * 6 + [500] * 11), load, TRIGGER_S)
    assert (found.before, found.worst, found.max_over_mean) == (1.0, 1.5, 1.0)
    assert found.balanced_s == pytest.approx((12_900 - 5000) / 1000), "batches 9 to 12: one of them is uneven"
    assert found.in_time == pytest.approx(11 / 12)
    assert (found.plans, found.moves, found.moving_s) == (0, 0, None)
    assert found.passed
    wrong = step.figures(seen(loads, [500] * 17, Verdict(9, 1, 0)), load, TRIGGER_S)
    assert not wrong.passed


def test_it_has_a_quick_run() -> None:
    assert registry.quick_runs("balance")
