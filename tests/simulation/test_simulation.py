"""Seeds of the simulated cluster, and the proof that its checkers bite: deliberate bugs that some seed must find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.epoch_bugs import EPOCH_BUGS, acks_of_another_epoch_are_passed_on, no_new_offer_to_who_has_stored
from tests.simulation.guest_bugs import GUEST_BUGS
from tests.simulation.seam_bugs import SEAM_BUGS, files_come_by_the_wall_clock
from tests.simulation.seeds import failures, run, usable_processors
from tests.simulation.support.simulation import in_ci_and_more

# By replication factor: one copy and guests, one link, two, rings of three and more among the members.
SEEDS_IN_CI = {0: 25, 1: 40, 2: 20, 3: 7}
SEEDS = {0: 100, 1: 400, 2: 200, 3: 50}
SEEDS_FOR_A_BUG = 150
# Tried before the others, as the first seeds do not find these bugs.
FINDS = {
    ("excess_deleted_on_the_managers_word", 1): 79,
    ("excess_deleted_on_the_managers_word", 2): 50,
    ("drained_worker_is_given_copies", 1): 13,
    ("epochs_issued_again", 2): 4,
    ("guest_of_one_operator_joins", 1): 6,
    ("lost_though_nobody_says_who_lives", 1): 5,
    ("lost_though_nobody_says_who_lives", 2): 12,
    ("no_new_offer_to_who_has_stored", 2): 14,
    ("only_members_hear_of_a_group", 2): 5,
    ("snapshot_of_version_1_is_forgotten", 1): 10,
    ("acks_of_another_epoch_are_passed_on", 2): 169,
    ("waiting_commit_asks_nobody_twice", 1): 119,
    ("waiting_commit_asks_nobody_twice", 2): 37,
    ("lost_though_a_worker_is_absent", 2): 15,
    ("files_come_by_the_wall_clock", 1): 7,
    ("guests_stay_guests", 2): 6,
    ("guest_of_one_operator_joins", 2): 6,
    ("lost_though_a_worker_is_silent", 2): 10,
}
# Where nobody passes anything on there are no acks of others; and one link less breaks when it matters.
ONLY_WITH_TWO = [acks_of_another_epoch_are_passed_on, no_new_offer_to_who_has_stored]
PLANTED = (*BUGS, *EPOCH_BUGS, *GUEST_BUGS, *SEAM_BUGS)
ONLY_WITH_ONE = [files_come_by_the_wall_clock]  # a matter of one worker: with more of them each has fewer files to lose
FOUND = [(bug, r) for bug in PLANTED for r in (1, 2) if bug not in (ONLY_WITH_TWO if r == 1 else ONLY_WITH_ONE)]


@pytest.mark.timeout(1200)  # a minute of all processors, which others may use as well
@pytest.mark.parametrize(
    ("factor", "seeds"), [case for r in SEEDS for case in in_ci_and_more(SEEDS_IN_CI[r], SEEDS[r], r)]
)
def test_every_invariant_holds(factor: int, seeds: range) -> None:
    for failure in failures(seeds, factor=factor, jobs=usable_processors()):
        if failure is not None:
            trace = "\n".join(run(failure.seed, factor=factor, verbose=True).trace[-60:])
            pytest.fail(f"{failure.replay} --trace\n{trace}\n{failure.text}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("bug", "factor"), FOUND, ids=lambda value: getattr(value, "__name__", f"r{value}"))
def test_a_deliberate_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FINDS.get((bug.__name__, factor), 0)
    with monkeypatch.context() as planted:
        bug(planted)
        seeds = (first, *range(SEEDS_FOR_A_BUG))
        found = next((seed for seed in seeds if run(seed, factor=factor).error is not None), None)
    if found is None:
        pytest.fail(f"{bug.__name__}: {bug.__doc__} Not found by {SEEDS_FOR_A_BUG} seeds")
    if found >= SEEDS_IN_CI[factor]:  # else the test above has seen it hold without the bug
        assert run(found, factor=factor).error is None


def test_a_seed_is_the_same_every_time() -> None:
    assert run(5, verbose=True).trace == run(5, verbose=True).trace
