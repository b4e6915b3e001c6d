"""Sets of workers that hold copies together: they are counted exactly, and a choice completes them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core.planning.copysets import Copysets, Sets, sets_of_a_worker

groups = st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=4), max_size=12)


def anybody(worker: str) -> bool:
    return True


@settings(deadline=None)
@given(groups, st.data())
def test_the_sets_in_use_are_those_of_the_groups(placed: list[frozenset[str]], data: st.DataObject) -> None:
    copysets, left = Copysets(), list(placed)
    for workers in placed:
        copysets.add(workers)
    for workers in data.draw(st.lists(st.sampled_from(placed), unique=True)) if placed else []:
        left.remove(workers)
        copysets.remove(workers)
    assert len(copysets) == len(Counter(left))
    for worker in "abcdef":
        mine = {workers for workers in left if worker in workers}
        assert set(copysets.of(worker)) == mine
        assert copysets.partners(worker) == set("".join(map("".join, mine))) - {worker}


def test_a_group_that_is_not_there_cannot_go() -> None:
    with pytest.raises(KeyError):
        Copysets().remove("ab")


def test_an_owner_with_few_sets_gets_others_with_few_that_it_has_not_met() -> None:
    copysets = Copysets()
    copysets.add("ab")
    copysets.add("cd")
    copysets.add("ce")
    sets = Sets(copysets, 2, 2, anybody)
    sets.choose("a")
    assert {worker: sets.rank(worker) for worker in "bcdf"} == {"b": 1, "c": 2, "d": 0, "f": 0}


def test_an_owner_with_enough_sets_completes_one() -> None:
    copysets = Copysets()
    for workers in ("abc", "ade", "bdf"):
        copysets.add(workers)
    sets = Sets(copysets, 3, 2, anybody)
    sets.choose("a")
    assert [sets.rank(worker) for worker in "bcdef"] == [0, 0, 0, 0, 3]
    sets.choose("d")
    assert [sets.rank(worker) for worker in "bcef"] == [3, 3, 0, 3]


def test_a_lost_member_is_replaced_by_the_same_worker_in_all_groups_of_its_set() -> None:
    copysets = Copysets()
    for workers in ("abx", "acd", "abe"):  # the first group of a, b and x has moved to e
        copysets.add(workers)
    sets = Sets(copysets, 3, 2, lambda worker: worker != "x")
    sets.choose("a", "b")
    assert [sets.rank(worker) for worker in "cdef"] == [3, 3, 0, 3]


@pytest.mark.parametrize(("width", "size", "sets"), [(4, 2, 4), (4, 3, 2), (4, 4, 2), (1, 4, 1), (6, 3, 3)])
def test_a_width_is_so_many_sets(width: int, size: int, sets: int) -> None:
    assert sets_of_a_worker(width, size) == sets
