"""Workers that are to be emptied: nothing new goes there, and others take their place without a copy less."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.errors import PreconditionError, UnknownError
from rhino_core.ids import NO_EPOCH, GroupId
from tests.replication_manager.protocol.harness import GROUP, Manager, written
from tests.replication_manager.support.returned import come_back, lost_and_replaced


def mark(manager: Manager, name: str, draining: bool = True) -> list[ev.Effect]:
    return manager.do(ev.DrainSet(name, draining))


def test_it_owns_nothing_again_by_writing() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    mark(manager, "a")
    manager.do(ev.Change(GROUP, "", "b"))
    for number in (4, 5, 6):
        manager.do(ev.BatchPublished("job", number - 1, (written(number),), ()))
        manager.beat("a", Report(GROUP, manager.group().epoch, True, 10, (), (written(number),)))
    assert manager.group().owner.worker_id == "b"


def test_new_groups_go_elsewhere_also_when_the_worker_names_them() -> None:
    manager = Manager("abc")
    mark(manager, "a")
    for partition in range(4):
        manager.resolve("b", GroupId("job", 0, partition))
    assert {manager.members(g) for g in manager.groups} == {"bc"}
    guest = manager.resolve("a", GroupId("job", 0, 9))
    assert {m.worker.worker_id for m in guest.members} == {"b", "c"}
    kin = manager.resolve("a", GroupId("job", 1, 9))
    assert [m.worker for m in kin.members] == [m.worker for m in guest.members], "one task, one chain"
    with pytest.raises(PreconditionError, match="being drained"):
        manager.do(ev.Change(GroupId("job", 0, 0), "a", ""))


def test_it_is_journalled_and_ends_with_the_worker() -> None:
    manager = Manager("abc")
    assert mark(manager, "b") == [ev.PersistDraining("b", True)]
    assert not mark(manager, "b")
    manager.restart()
    for name in "abc":
        manager.register(name)
    manager.resolve("a")
    assert manager.members() == "ac"
    manager.lose("b")
    manager.do(ev.WorkerForgotten("b"))
    assert not manager.draining
    with pytest.raises(UnknownError, match="'x' is not known"):
        mark(manager, "x")


def test_a_source_stays_while_a_drained_owner_would_be_counted_in_its_place() -> None:
    """Simulator, seed 192 with drains: the group was left with its drained owner and one more."""
    manager = lost_and_replaced()
    assert manager.members() == "ac"
    come_back(manager, written(7))
    manager.now += 1
    for name in "ac":
        manager.beat(name)
    assert manager.members() == "acb?", "b has a version that they lack"
    mark(manager, "a")
    for name in "acb":
        manager.whole(name)
    for name in "acb":
        manager.whole(name)
    assert manager.members() == "acb"
    manager.do(ev.Change(GROUP, "", "c"))
    assert manager.members() == "cb"


def test_a_drained_worker_with_the_only_copy_of_a_version_stays_until_the_others_have_it() -> None:
    """It was lost after a degraded commit, or the last of those that committed with it have lost their disks."""
    manager = lost_and_replaced()
    mark(manager, "b")
    come_back(manager, written(7))
    assert GROUP in manager.machine.unsettled("b"), "a and c have not been heard since"
    manager.now += 1
    for name in "ac":
        manager.beat(name)
    assert manager.members() == "acb?", "a and c are whole without it"
    assert GROUP in manager.machine.unsettled("b")
    for name in "acb":
        manager.whole(name)
    for name in "acb":
        manager.whole(name)
    assert manager.members() == "ac"
    assert not manager.machine.unsettled("b")


def test_one_that_has_nothing_yet_gives_way_to_one_that_stores_more() -> None:
    """Simulator, seed 1892: b, the only whole member, is away, so no third member could catch up."""
    manager = Manager("abc")
    manager.resolve("a")
    manager.beat("b", Report(GROUP, manager.group().epoch, True, 100, (written(6),)))
    manager.lose("a")
    assert manager.members() == "bc?"
    manager.lose("b")
    mark(manager, "c")
    manager.now += 1
    manager.register("a", Report(GROUP, NO_EPOCH, False, 100, (written(6),)), process="second")
    assert manager.members() == "ba?"
