"""Copies go where the load is low when that of their virtual node is high, if the manager is to place them by load."""

from __future__ import annotations

import math

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine, Restored
from replication_manager.protocol.placement import better_places as load_decisions
from replication_manager.protocol.placement import load_histories
from replication_manager.protocol.placement.better_places import LoadDecisions
from replication_manager.protocol.placement.candidates import Choice
from replication_manager.protocol.placement.load_histories import BATCHES, KEPT, LEAST, USUAL, Fit, Fits, LoadHistories
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import Epoch, GroupId, JobSettings, Member, ReplicaGroup
from tests.replication_manager.protocol.harness import LEASE_TIMES, Manager, worker


def group(partition: int) -> GroupId:
    return GroupId("job", 0, partition)


def rising(window: int) -> float:
    return 1.0 + window


def falling(window: int) -> float:
    return 40.0 - window


def seen(loads: dict[int, list[float]]) -> LoadHistories:
    """The loads of partitions, one value for each window."""
    histories = LoadHistories()
    for window in range(len(next(iter(loads.values())))):
        for _ in range(BATCHES):
            histories.add("job", {group(partition): values[window] for partition, values in loads.items()})
    return histories


def held(partition: int, owner: str, *copies: str) -> ReplicaGroup:
    members = tuple(Member(worker(name), True) for name in (owner, *copies))
    return ReplicaGroup(group(partition), Epoch(1, 1), members, 1, JobSettings(len(copies)))


def test_a_window_is_the_median_of_its_batches_so_one_that_loads_state_does_not_count() -> None:
    histories = LoadHistories()
    for window in range(LEAST):
        for number in range(BATCHES):
            histories.add("job", {group(0): 100.0 if window == 3 and number == 0 else 2.0})
    assert histories.of(group(0)) == [2.0] * LEAST
    assert histories.of(group(1)) == [0.0] * LEAST, "a group without tasks has no load"


def test_too_few_windows_say_nothing_and_old_ones_are_dropped() -> None:
    assert seen({0: [1.0] * (LEAST - 1)}).of(group(0)) == []
    histories = seen({0: [float(window) for window in range(KEPT + 5)]})
    assert histories.of(group(0)) == [float(window) for window in range(5, KEPT + 5)]
    histories.forget_job("job")
    assert histories.of(group(0)) == []


def test_a_worker_whose_load_falls_suits_a_rising_group_best_and_its_like_worst() -> None:
    windows = range(20)
    histories = seen(
        {0: [rising(w) for w in windows], 1: [rising(w) for w in windows], 2: [falling(w) for w in windows]}
    )
    fits = Fits(histories, [held(0, "a", "d"), held(1, "b", "d"), held(2, "c", "d")], 4).of(group(0))
    assert fits["c"].level < USUAL.level < fits["b"].level
    assert fits["d"].beyond, "one worker has all copies"
    assert not fits["c"].beyond


def test_copies_that_are_added_count_against_a_worker() -> None:
    windows = range(20)
    histories = seen({p: [1.0 + (w + p) % 3 for w in windows] for p in range(6)})
    fits = Fits(histories, [held(p, "a", "b" if p % 2 else "c") for p in range(6)], 3)
    assert not fits.of(group(0))["b"].beyond
    fits.add(group(0), ["b"])
    assert fits.of(group(0))["b"].beyond


def cluster(*, by_load: bool) -> Manager:
    """Workers a to d with a group each; the loads of a and b rise, that of c falls, d has no load."""
    manager = Manager()
    manager.machine = ReplicationMachine(Restored(1), LEASE_TIMES, now=0.0, scatter_width=0, by_load=by_load)
    for name in "abcde":
        manager.register(name)
    for partition, name in enumerate("abc"):
        manager.resolve(name, group(partition), JobSettings(1))
    for window in range(20):
        loads = {group(0): rising(window), group(1): rising(window), group(2): falling(window)}
        for batch in range(BATCHES):
            manager.do(ev.BatchPublished("job", window * BATCHES + batch, (), (), loads))
    for name in "abcde":
        mine = [g for g in manager.machine.groups.values() if g.member(name) is not None]
        manager.beat(name, *(Report(g.group, g.epoch, True, 10) for g in mine))
    return manager


def copy_of_a(manager: Manager) -> str:
    return manager.group(group(0)).members[1].worker.worker_id


@pytest.mark.parametrize("by_load", [True, False])
def test_a_lost_copy_goes_to_the_worker_whose_load_falls_if_loads_decide(by_load: bool) -> None:
    manager = cluster(by_load=by_load)
    before = copy_of_a(manager)
    assert before not in "ac", "nothing was known of loads yet"
    manager.lose(before)
    assert (copy_of_a(manager) == "c") == by_load
    decisions = manager.machine.copy_decisions
    assert bool(decisions) == by_load
    if by_load:
        found = decisions[group(0)]["c"]
        assert (found.chosen.worker, round(found.chosen.correlation, 9), found.origin) == ("c", -1.0, None)
        assert found.other is not None
        assert found.other.worker in "de", "that of b rises"
        assert (found.other.correlation, found.other.beyond) == (0.0, False)
        assert found.error == pytest.approx(1 / math.sqrt(20))
    manager.do(ev.JobForgotten("job"))
    assert not manager.groups


def test_of_many_decisions_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_decisions, "GROUPS_MAX", 3)
    monkeypatch.setattr(load_decisions, "WORKERS_MAX", 2)
    decisions, windows = LoadDecisions(), range(20)
    histories = seen({p: [rising(w) if p != 2 else falling(w) for w in windows] for p in range(6)})
    fits = Fits(histories, [held(0, "a"), held(2, "c")], 3)

    def kept() -> dict[int, str]:
        return {found.partition: "".join(by_worker) for found, by_worker in decisions.by_group.items()}

    for now, (partition, name) in enumerate([(0, "c"), (1, "c"), (0, "d"), (2, "a"), (3, "c"), (0, "e"), (0, "f")]):
        decisions.placed(group(partition), Choice(worker(name), ("b",)), fits, float(now))
    assert kept() == {2: "a", 3: "c", 0: "ef"}
    decisions.placed(group(0), Choice(worker("f"), ()), fits, 9.0)
    assert kept() == {2: "a", 3: "c", 0: "e"}, "loads did not decide this time"
    decisions.placed(group(0), Choice(worker("e"), ()), fits, 9.0)
    assert kept() == {2: "a", 3: "c"}
    best = decisions.by_group[group(2)]["a"].other
    assert best == ("b", 0.0, False)


def test_a_planted_bug_that_ignores_loads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_histories.Fits, "of", lambda self, group: dict[str, Fit]())
    manager = cluster(by_load=True)
    manager.lose(copy_of_a(manager))
    assert copy_of_a(manager) != "c"
