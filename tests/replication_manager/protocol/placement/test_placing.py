"""The copies of a worker are on few others, through losses, and no worker gets much more than its part."""

from __future__ import annotations

from collections import Counter

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine, Restored
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import NO_EPOCH, GroupId, JobSettings
from rhino_core.planning.copysets import Sets, sets_of_a_worker
from tests.replication_manager.protocol.harness import LEASE_TIMES, Manager, worker

WORKERS = [f"w{number:02}" for number in range(24)]
GROUPS_OF_EACH = 12


def cluster(factor: int, width: int) -> Manager:
    manager = Manager()
    manager.machine = ReplicationMachine(Restored(1), LEASE_TIMES, now=0.0, scatter_width=width)
    for number, name in enumerate(WORKERS):
        found = worker(name, zone=f"zone-{number % 3}")
        manager.do(ev.Registered(found, f"{name}-process", NO_EPOCH, ()))
    for partition in range(GROUPS_OF_EACH * len(WORKERS)):
        manager.resolve(WORKERS[partition % len(WORKERS)], GroupId("job", 0, partition), JobSettings(factor))
    return manager


def sets_of(manager: Manager) -> set[frozenset[str]]:
    return {frozenset(m.worker.worker_id for m in group.members) for group in manager.machine.groups.values()}


def whole(manager: Manager, name: str) -> None:
    """The worker has copied everything of its groups."""
    mine = [group for group in manager.machine.groups.values() if group.member(name) is not None]
    manager.beat(name, *(Report(group.group, group.epoch, True, 10) for group in mine))


def most(factor: int, width: int) -> float:
    """Sets that are expected, and half as many again for zones and the last ones."""
    return 1.5 * len(WORKERS) * sets_of_a_worker(width, factor + 1) / (factor + 1)


@pytest.mark.parametrize(("factor", "width"), [(1, 2), (1, 4), (2, 2), (2, 4)])
def test_few_sets_of_workers_hold_all_groups_evenly(factor: int, width: int) -> None:
    manager = cluster(factor, width)
    assert len(sets_of(manager)) <= most(factor, width)
    held = Counter(m.worker.worker_id for group in manager.machine.groups.values() for m in group.members[1:])
    assert max(held.values()) <= 1.35 * GROUPS_OF_EACH * factor
    zones = {name: number % 3 for number, name in enumerate(WORKERS)}
    assert all(len({zones[name] for name in found}) == factor + 1 for found in sets_of(manager))


@pytest.mark.parametrize("factor", [1, 2])
def test_sets_stay_few_while_workers_are_lost_one_by_one(factor: int) -> None:
    manager = cluster(factor, 4)
    for lost in WORKERS[:6]:
        manager.lose(lost)
        for name in set(WORKERS) - set(WORKERS[: WORKERS.index(lost) + 1]):
            whole(manager, name)
    found = sets_of(manager)
    assert all(len(workers) == factor + 1 and not workers & set(WORKERS[:6]) for workers in found)
    assert len(found) <= most(factor, 4)


def test_groups_stay_where_they_are_when_the_width_changes() -> None:
    manager = cluster(1, 0)
    before = dict(manager.machine.groups)
    restored = Restored(2, [worker(name) for name in WORKERS], before.values())
    manager.machine = ReplicationMachine(restored, LEASE_TIMES, now=0.0, scatter_width=4)
    for number, name in enumerate(WORKERS):
        manager.do(ev.Registered(worker(name, zone=f"zone-{number % 3}"), f"{name}-process", NO_EPOCH, ()))
    assert sets_of(manager) == {frozenset(m.worker.worker_id for m in group.members) for group in before.values()}


@pytest.mark.parametrize("bug", ["no limit", "always new sets"])
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "no limit":
        monkeypatch.setattr(Sets, "rank", lambda self, name: 0)
    else:
        monkeypatch.setattr(Sets, "_is_live", lambda self, found, chosen: False)
    assert len(sets_of(cluster(2, 2))) > most(2, 2)
