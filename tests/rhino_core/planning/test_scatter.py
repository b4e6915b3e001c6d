"""Sets of workers that hold copies together: what they promise, and how much less is lost with them."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core import errors
from rhino_core.planning.model import Site
from rhino_core.planning.scatter import scatter


@st.composite
def clusters(draw: st.DrawFn) -> list[Site]:
    """Workers in 1 to 4 zones of any size, sometimes two on a host."""
    zones = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    places = [(zone, number) for zone, count in enumerate(zones) for number in range(count)]
    shared = draw(st.booleans())
    return [
        Site(f"w{zone}-{number}", f"h{zone}-{number // 2 if shared else number}", f"z{zone}" if len(zones) > 1 else "")
        for zone, number in places
    ]


@settings(deadline=None)
@given(clusters(), st.integers(2, 4), st.integers(1, 3))
def test_every_worker_is_in_sets_over_hosts_and_zones(sites: list[Site], size: int, permutations: int) -> None:
    by_id = {site.worker_id: site for site in sites}
    if len({site.host for site in sites}) < size:
        with pytest.raises(errors.TooFewWorkersError, match=f"sets of {size} workers need {size} hosts"):
            scatter(sites, size, permutations)
        return
    made = scatter(sites, size, permutations)
    assert made.of_worker.keys() == by_id.keys()
    assert all(len(sets) >= permutations for sets in made.of_worker.values())
    zones = {site.zone for site in sites}
    for found in made.sets:
        assert len({by_id[worker].host for worker in found}) == size == len(found)
        assert len({by_id[worker].zone for worker in found}) == min(size, len(zones))
    assert scatter(list(reversed(sites)), size, permutations) == made


def test_copies_go_evenly_to_few_partners() -> None:
    sites = [Site(f"w{number}", zone=f"z{number % 3}") for number in range(60)]
    made, loads = scatter(sites, 3, 2), dict[str, float]()
    partners: dict[str, set[str]] = {}
    for site in sites:
        for _ in range(20):
            partners.setdefault(site.worker_id, set()).update(made.choose(site.worker_id, loads, 1.0))
    assert all(len(found) <= 4 for found in partners.values())
    assert sum(map(len, partners.values())) > 3 * len(partners)
    assert max(loads.values()) <= 1.4 * sum(loads.values()) / len(sites)


def test_few_combinations_of_lost_workers_lose_state() -> None:
    """By counting: a combination of three lost workers is fatal if it is a set, or holds a group at random."""
    sites = [Site(f"w{number}", zone=f"z{number % 3}") for number in range(3000)]
    fatal = Counter(frozenset(found) for found in scatter(sites, 3, 2).sets)
    assert len(fatal) == 2000
    groups, combinations = 300_000, math.comb(3000, 3)
    at_random = combinations * (1 - (1 - 1 / combinations) ** groups)
    assert at_random / len(fatal) > 100


def test_impossible_sets_and_unknown_owners_are_refused() -> None:
    sites = [Site(f"w{number}") for number in range(3)]
    with pytest.raises(errors.InvalidRequestError, match="sets of 1"):
        scatter(sites, 1, 1)
    with pytest.raises(errors.TooFewWorkersError, match="worker w9 is in no set of 3"):
        scatter(sites, 3, 1).choose("w9", {}, 1.0)
    full = [*sites[:2], Site("w2", takes=False)]
    with pytest.raises(errors.TooFewWorkersError, match="need 3 hosts, 2 take copies"):
        scatter(full, 3, 1)
