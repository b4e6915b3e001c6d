"""Seeds of the simulated cluster, and the proof that its checkers bite: deliberate bugs that some seed must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.seeds import failures, run, usable_processors
from tests.simulation.spread import SpreadCluster

SEEDS = 750
SEEDS_R2 = 200
SEEDS_R3 = 50  # rings of three and more among the members
SEEDS_FOR_A_BUG = 100
SEEDS_SPREAD = 30


@pytest.mark.timeout(1200)  # a minute of all processors, which others may use as well
@pytest.mark.parametrize(("factor", "seeds"), [(1, SEEDS), (2, SEEDS_R2), (3, SEEDS_R3)])
def test_every_invariant_holds(factor: int, seeds: int) -> None:
    for failure in failures(range(seeds), factor=factor, jobs=usable_processors()):
        if failure is not None:
            trace = "\n".join(run(failure.seed, factor=factor, verbose=True).trace[-60:])
            pytest.fail(f"{failure.replay} --trace\n{trace}\n{failure.text}")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_deliberate_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    if all(run(seed).error is None for seed in range(SEEDS_FOR_A_BUG)):
        pytest.fail(f"{bug.__name__}: {bug.__doc__} Not found by {SEEDS_FOR_A_BUG} seeds")


def test_spread_blocks_have_their_copies() -> None:
    for seed in range(SEEDS_SPREAD):
        cluster = SpreadCluster(seed)
        try:
            cluster.run()
        except AssertionError as error:
            trace = "\n".join(cluster.world.trace[-60:])
            pytest.fail(f"{trace}\nseed {seed}: {error}")


def test_a_seed_is_the_same_every_time() -> None:
    assert run(5, verbose=True).trace == run(5, verbose=True).trace
