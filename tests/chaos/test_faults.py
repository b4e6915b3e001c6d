"""The drawn faults: a short run has every kind of fault, a long one has them by their weights."""

from __future__ import annotations

from collections import Counter
from typing import cast

import pytest

from rhino.testing import LocalCluster
from rhino.testing.process import Process
from tests.chaos.faults import Begun, Faults, NotNow

SHORT, LONG = 20, 3100


def faults(seed: int) -> Faults:
    """Kinds and weights are real, and nothing happens."""
    made = Faults(cast(LocalCluster, None), lambda: cast(Process, None), seed, own_disks=True)
    made.kinds = {name: (weight, lambda: Begun("nothing")) for name, (weight, _) in made.kinds.items()}
    return made


def play(made: Faults, count: int) -> Counter[str]:
    drawn = Counter[str]()
    while drawn.total() < count:
        name = made.draw()
        try:
            made.begin(name)
        except NotNow:
            continue
        drawn[name] += 1
    return drawn


@pytest.mark.parametrize("seed", range(10))
def test_a_short_run_has_nearly_every_kind(seed: int) -> None:
    made = faults(seed)
    assert len(play(made, SHORT)) >= len(made.kinds) - 1


def test_a_kind_that_is_refused_is_drawn_again() -> None:
    made = faults(7)
    refusals = iter(range(10))

    def refuse_at_first() -> Begun:
        if next(refusals, None) is not None:
            raise NotNow("the cluster is not whole")
        return Begun("nothing")

    made.kinds["lose disk"] = 1, refuse_at_first
    assert play(made, 2 * SHORT)["lose disk"] >= 1
    assert next(refusals, None) is None


def test_a_long_run_has_kinds_by_their_weights() -> None:
    made = faults(7)
    drawn, weights = play(made, LONG), {name: weight for name, (weight, _) in made.kinds.items()}
    for name, weight in weights.items():
        assert drawn[name] == pytest.approx(LONG * weight / sum(weights.values()), rel=0.35)


def test_the_same_seed_draws_the_same() -> None:
    assert play(faults(3), SHORT) == play(faults(3), SHORT)
