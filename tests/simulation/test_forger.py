"""A worker that is no member plants nothing, whatever it knows; and the checkers would see it."""

from __future__ import annotations

import pytest

from tests.simulation.cluster import FAULTY_S, Cluster
from tests.simulation.facts import Violation
from tests.simulation.forger import Forger
from tests.simulation.variety import drawn
from worker_runtime.protocol.chain.completing import Completing
from worker_runtime.protocol.chain.groups import Writers

SEEDS = 8
SEEDS_FOR_A_BUG = 8


def attacked(seed: int) -> Forger:
    """A run with a forger. Raises Violation."""
    cluster = Cluster(seed, workers=4, factor=1, variety=drawn(seed, 1))
    forger = Forger(cluster)
    cluster.world.at(1.0, lambda: forger.start(until=FAULTY_S))
    cluster.run()
    return forger


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_worker_outside_of_the_group_plants_no_file(seed: int) -> None:
    assert attacked(seed).tried > 50


def found() -> bool:
    for seed in range(SEEDS_FOR_A_BUG):
        try:
            attacked(seed)
        except Violation:
            return True
    return False


@pytest.mark.timeout(300)
def test_files_of_strangers_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writers, "may_write", lambda self, group, worker_id: True)
    assert found()


@pytest.mark.timeout(300)
def test_acknowledgements_of_strangers_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Completing, "_from_members", lambda self, key, *worker_ids: True)
    assert found()
