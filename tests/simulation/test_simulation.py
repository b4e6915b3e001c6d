"""Seeds of the simulated cluster, and the proof that its checkers bite: deliberate bugs that some seed must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.__main__ import run
from tests.simulation.bugs import BUGS

SEEDS = 230
SEEDS_R2 = 70
SEEDS_FOR_A_BUG = 60


@pytest.mark.parametrize(("factor", "seeds"), [(1, SEEDS), (2, SEEDS_R2)])
def test_every_invariant_holds(factor: int, seeds: int) -> None:
    for seed in range(seeds):
        outcome = run(seed, factor=factor)
        if outcome.error is not None:
            trace = "\n".join(outcome.trace[-60:])
            pytest.fail(f"python -m tests.simulation --seed {seed} --factor {factor} --trace\n{trace}\n{outcome.error}")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_deliberate_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    if all(run(seed).error is None for seed in range(SEEDS_FOR_A_BUG)):
        pytest.fail(f"{bug.__name__}: {bug.__doc__} Not found by {SEEDS_FOR_A_BUG} seeds")


def test_a_seed_is_the_same_every_time() -> None:
    assert run(5, verbose=True).trace == run(5, verbose=True).trace
