"""A member that has become slow for good, in a cluster without any other fault."""

from __future__ import annotations

import pytest

from rhino_core.ids import ReplicaGroup
from tests.simulation.cluster import Cluster
from tests.simulation.manager import LAG_CAP_S
from tests.simulation.world import Faults

SLOW_AT_S, DROPPED_BY_S, END_S = 4.0, 14.0, 24.0


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_replaced_once_and_slows_nobody_afterwards(
    seed: int, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(seed, workers=factor + 2, factor=factor)
    cluster.world.faults = Faults.none()
    with cluster.scaled_periods():
        cluster.start()
        cluster.world.run_until(SLOW_AT_S)
        slow = next(iter(cluster.manager.core.groups.values())).members[-1].worker.worker_id
        cluster.sidecars[slow].disk.slow_s = 2 * LAG_CAP_S
        cluster.world.run_until(DROPPED_BY_S)
        secondaries = [g.members[1:] for g in cluster.manager.core.groups.values()]
        assert slow not in {m.worker.worker_id for chain in secondaries for m in chain}
        issued: list[ReplicaGroup] = []
        checked = cluster.checkers.group_issued

        def note(group: ReplicaGroup) -> None:
            checked(group)
            issued.append(group)

        monkeypatch.setattr(cluster.checkers, "group_issued", note)
        before = [len(store.history) for store in cluster.workload.stores]
        cluster.world.run_until(END_S)
    assert not [g for g in issued if slow in {m.worker.worker_id for m in g.members[1:]}], "it came back, still slow"
    logged = [len(store.history) - past for store, past in zip(cluster.workload.stores, before, strict=True)]
    assert min(logged) > 10, f"{logged} batches in {END_S - DROPPED_BY_S} s"
