"""Seeds of the journal on witnesses, and the proof that the watch bites: deliberate bugs that some seed must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.seeds import usable_processors
from tests.simulation.support.simulation import in_ci_and_more
from tests.simulation.witness.bugs import BUGS
from tests.simulation.witness.seeds import failures, run

SEEDS_IN_CI = 40
SEEDS = 10_000
SEEDS_FOR_A_BUG = 50
# Tried before the others, as the first seeds do not find these bugs.
FINDS: dict[str, int] = {}
FOUND = (
    4016,  # a candidate read a log that another leader of its generation replaced meanwhile, and mixed the two
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", in_ci_and_more(SEEDS_IN_CI, SEEDS))
def test_every_invariant_holds(seeds: range) -> None:
    for failure in failures(seeds, jobs=usable_processors()):
        if failure is not None:
            seed, error = failure
            trace = "\n".join(run(seed, traced=True).trace[-60:])
            pytest.fail(f"python -m tests.simulation.witness --seed {seed}\n{trace}\n{error}")


@pytest.mark.parametrize("seed", FOUND)
def test_what_seeds_have_found(seed: int) -> None:
    assert run(seed).error is None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_deliberate_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        bug(planted)
        seeds = (FINDS.get(bug.__name__, 0), *range(SEEDS_FOR_A_BUG))
        found = next((seed for seed in seeds if run(seed).error is not None), None)
    if found is None:
        pytest.fail(f"{bug.__name__}: {bug.__doc__} Not found by {SEEDS_FOR_A_BUG} seeds")
    if found >= SEEDS_IN_CI:  # else the test above has seen it hold without the bug
        assert run(found).error is None


def test_a_seed_is_the_same_every_time() -> None:
    assert run(5, traced=True).trace == run(5, traced=True).trace
