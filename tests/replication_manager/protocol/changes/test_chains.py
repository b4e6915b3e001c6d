"""Many workers and groups: work comes in parts, and a busy manager does not take workers for lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes import chains
from replication_manager.protocol.groups.waiting import Waiting
from replication_manager.protocol.workers.leases import MANY
from rhino_core.ids import NO_EPOCH, Epoch, GroupId, JobSettings, Member, ReplicaGroup
from tests.replication_manager.protocol.harness import Manager, worker

GROUPS = [GroupId("job", 0, partition) for partition in range(5)]


def test_groups_of_a_lost_worker_are_repaired_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "REPAIRS_AT_ONCE", 2)
    manager = Manager("abc")
    for group in GROUPS:
        manager.resolve("a", group)
        manager.do(ev.Change(group, "b", ""))
    manager.lose("a")
    done = []
    while True:
        done.append(sum(manager.group(group).member("a") is None for group in GROUPS))
        deadline = manager.machine.next_deadline()
        assert deadline is not None
        if deadline > manager.now + chains.REPAIR_PAUSE_S:
            break
        manager.now = deadline
        manager.do(ev.Tick())
    assert done == [2, 4, 5]


def test_a_group_that_lost_more_is_repaired_before_others_that_wait_already(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager("abcde")
    for group in GROUPS:
        manager.resolve("a", group, JobSettings(2))
    urgent = GroupId("other", 0, 0)
    only_copy = manager.resolve("a", urgent, JobSettings(1)).members[1].worker.worker_id
    monkeypatch.setattr(chains, "REPAIRS_AT_ONCE", 0)
    manager.lose(min({name for group in GROUPS for name in manager.members(group)[1:]} - {only_copy}))
    manager.lose(only_copy)
    monkeypatch.setattr(chains, "REPAIRS_AT_ONCE", 1)
    repaired = []
    for _ in range(3):
        effects = manager.do(ev.Tick())
        repaired += [effect.group.group for effect in effects if isinstance(effect, ev.PublishGroup)]
    assert repaired[0] == urgent
    assert len(repaired) == 3


def test_a_worker_that_comes_wakes_only_groups_that_do_not_wait_already(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager("ab")
    for group in GROUPS:
        manager.resolve("a", group, JobSettings(1))
    manager.lose("b")
    woken = list[GroupId]()
    add = Waiting.add

    def counted(waiting: Waiting, group: ReplicaGroup) -> None:
        woken.append(group.group)
        add(waiting, group)

    monkeypatch.setattr(Waiting, "add", counted)
    monkeypatch.setattr(chains, "REPAIRS_AT_ONCE", 2)
    manager.register("c")
    assert (woken, [len(manager.members(g).replace("?", "")) for g in GROUPS]) == (GROUPS, [2, 2, 1, 1, 1])
    woken.clear()
    manager.register("d")
    assert (woken, [len(manager.members(g).replace("?", "")) for g in GROUPS]) == ([], [2, 2, 2, 2, 1])
    manager.do(ev.Tick())
    assert [len(manager.members(g).replace("?", "")) for g in GROUPS] == [2] * 5


@given(st.lists(st.tuples(st.sampled_from(["add", "take", "rest", "discard"]), st.integers(0, 9), st.integers(0, 3))))
def test_the_fewest_whole_come_first_and_of_these_the_one_that_waits_longest(did: list[tuple[str, int, int]]) -> None:
    """Compared with a list that is sorted anew each time."""
    waiting, expected, resting = Waiting(GROUPS[:2]), list[tuple[int, GroupId]](), dict.fromkeys(GROUPS[:2])
    for what, number, whole in did:
        name = GroupId("job", 0, number)
        entry = next((found for found in expected if found[1] == name), None)
        match what:
            case "add":
                waiting.add(ReplicaGroup(name, Epoch(1, 1), tuple(Member(worker(w), True) for w in "abc"[:whole]), 1))
                resting.pop(name, None)
                if entry is None or entry[0] != whole:
                    expected = [found for found in expected if found != entry] + [(whole, name)]
            case "take":
                first = sorted(expected, key=lambda found: found[0])[:number]
                assert waiting.take(number) == [name for _, name in first]
                expected = [found for found in expected if found not in first]
            case "rest":
                waiting.rest(name)
                if entry is None:
                    resting[name] = None
            case _:
                waiting.discard(name)
                expected = [found for found in expected if found != entry]
                resting.pop(name, None)
        assert len(waiting) == len(expected)
        assert waiting.resting() == list(resting)


def test_nobody_is_lost_while_many_workers_return_after_a_restart() -> None:
    names = [f"w{number:02}" for number in range(MANY + 5)]
    manager = Manager()
    for name in names:
        manager.register(name)
    manager.resolve("w00")
    before = manager.members()
    manager.restart()
    for name in names[:2]:
        manager.now += 4.0
        manager.register(name)
        manager.do(ev.StreamBroken(name, f"{name}-process"))
    for _ in range(2):
        manager.now += 7.0
        manager.do(ev.Tick())
        assert (manager.members(), len(manager.machine.membership.present())) == (before, len(names))
    manager.now += 1.5
    manager.do(ev.Tick())
    assert manager.machine.membership.present() == [], "nobody returns any more"


def test_the_list_of_workers_is_the_same_when_one_only_registers_again() -> None:
    manager = Manager("ab")
    membership = manager.machine.membership
    edition = membership.edition
    manager.register("a")
    assert membership.edition == edition
    manager.restart()
    membership = manager.machine.membership
    edition = membership.edition
    manager.register("a")
    assert membership.edition == edition
    manager.do(ev.Registered(worker("b", zone="elsewhere"), "b-process", NO_EPOCH, ()))
    assert membership.edition == edition + 1


SILENT = MANY + 2


def rounds(manager: Manager, heard: list[str], count: int) -> list[int]:
    """How many workers are lost after each of some seconds in which the manager hears only a few."""
    lost = []
    for _ in range(count):
        manager.now += 1.0
        for name in heard:
            manager.beat(name)
        manager.do(ev.Tick())
        membership = manager.machine.membership
        lost.append(len(membership.records) - len(membership.present()))
    return lost


def of_workers(count: int) -> tuple[Manager, list[str]]:
    manager, names = Manager(), [f"w{number:02}" for number in range(count)]
    for name in names:
        manager.register(name)
    return manager, names


def broken(manager: Manager, names: list[str]) -> None:
    """Their streams end."""
    for name in names:
        manager.do(ev.StreamBroken(name, f"{name}-process"))


def test_many_that_fall_silent_at_once_are_lost_when_their_streams_end() -> None:
    manager, names = of_workers(2 * SILENT)
    silent, heard = names[:SILENT], names[SILENT:]
    assert rounds(manager, heard, 15) == [0] * 15, "the manager may be too busy to hear them"
    broken(manager, silent)
    assert rounds(manager, heard, 4)[-1] == SILENT


def test_a_few_that_fall_silent_are_lost_after_their_lease() -> None:
    manager, names = of_workers(2 * SILENT)
    assert rounds(manager, names[MANY:], 7) == [0] * 4 + [MANY] * 3


def test_many_whose_heartbeats_come_late_are_not_lost_a_few_at_a_time() -> None:
    """Each is heard of every seven seconds, and they take turns."""
    manager, names = of_workers(2 * SILENT)
    lost = [rounds(manager, names[second % 7 :: 7], 1) for second in range(60)]
    assert lost == [[0]] * 60


def test_many_whose_streams_break_at_once_have_three_leases_to_come_back() -> None:
    manager, names = of_workers(2 * SILENT)
    broken(manager, names[:SILENT])
    assert rounds(manager, names[SILENT:], 10) == [0] * 10
    for name in names[1:SILENT]:
        manager.register(name)
    assert rounds(manager, names[1:], 6)[-1] == 1, "the one that did not"
    assert rounds(manager, names[1:], 5) == [1] * 5


def test_a_manager_that_hears_few_of_its_workers_blames_itself() -> None:
    """It is too busy to read. What it would do for lost workers would make it busier, for ever."""
    manager, names = of_workers(2 * SILENT - 5)
    heard = names[SILENT:]
    assert rounds(manager, heard, 60) == [0] * 60
    manager.do(ev.StreamBroken(names[0], f"{names[0]}-process"))
    assert rounds(manager, heard, 20)[-10:] == [1] * 10, "this one is gone"
    assert rounds(manager, names[1:], 20) == [1] * 20
