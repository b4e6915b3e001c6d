"""A worker that comes back outside a group with a version that no member has: the others catch up from it."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.groups.returned import Returned
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import NO_EPOCH, Epoch, Member, ReplicaGroup, StoreVersion
from tests.replication_manager.protocol.harness import GROUP, LEASE_TIMES, STORE, Manager, worker, written
from tests.replication_manager.support.returned import come_back, holding, lost_and_replaced


def test_it_joins_once_every_whole_member_has_been_heard_and_leaves_when_all_are_whole() -> None:
    manager = lost_and_replaced()
    come_back(manager, written(7))
    manager.now += 1
    manager.beat("a", holding(manager, written(6)))
    assert manager.members() == "ac", "c may have it and only not have said so"
    manager.beat("c")
    assert manager.members() == "acb?"
    manager.beat("b", holding(manager, written(7)))
    assert manager.members() == "acb"
    for name in "ac":
        assert manager.members() == "acb", "a and c have not all caught up from b"
        manager.beat(name, holding(manager, written(7)))
        manager.beat("b", holding(manager, written(7)))
    assert manager.members() == "ac"


def test_it_stays_outside_when_a_member_has_its_version_or_the_floor_has_passed() -> None:
    manager = lost_and_replaced()
    come_back(manager, written(6))
    manager.now += 1
    manager.beat("a")
    manager.beat("c")
    assert manager.members() == "ac"
    manager.do(
        ev.BatchPublished(
            "job", 8, (StoreVersion(STORE, written(8).version),), (StoreVersion(STORE, written(8).version),)
        )
    )
    come_back(manager, written(7))
    manager.now += 1
    manager.beat("a")
    manager.beat("c")
    assert manager.members() == "ac"


def test_a_version_exactly_at_the_floor_is_needed() -> None:
    manager = lost_and_replaced()
    manager.do(ev.BatchPublished("job", 7, (written(7),), (written(7),)))
    come_back(manager, written(7))
    manager.now += 1
    manager.beat("a")
    manager.beat("c")
    assert manager.members() == "acb?"


def test_it_joins_when_the_present_members_are_new_and_have_blessed_each_other() -> None:
    """Simulator, seed 76: the last whole member lost its disk; the empty ones were whole by catching up from nobody."""
    manager = lost_and_replaced()
    manager.do(ev.StreamBroken("a", "a-process"))
    manager.do(ev.StreamBroken("c", "c-process"))
    manager.now += 1.5
    manager.do(ev.Tick())
    for name in "ac":
        manager.register(name, Report(GROUP, NO_EPOCH, False, 0), incarnation=2, process="second")
    come_back(manager, written(7))
    assert "b?" in manager.members()


def test_a_drained_one_stays_until_enough_others_count_as_whole() -> None:
    """Simulator, seed 244: b had said that it was whole, and was not believed, for it was impaired."""
    returned, epoch = Returned(), Epoch(1, 1)
    returned.joined_to_write(GROUP, "a")
    membership = Membership(LEASE_TIMES, draining="a")
    for name in "abc":
        membership.register(worker(name), f"{name}-process", (Report(GROUP, epoch, True, 10),), 0.0)

    def leaving(whole: str) -> set[str]:
        members = tuple(Member(worker(name), name in whole) for name in "cab")
        return returned.take_superfluous(ReplicaGroup(GROUP, epoch, members, 1), membership)

    assert leaving("ca") == set()
    assert returned.joined(GROUP) == {"a"}
    assert leaving("cab") == {"a"}
    assert returned.joined(GROUP) == set()


def test_one_that_stores_more_does_not_take_the_place_of_a_member_with_a_later_version() -> None:
    """c has version 7 alone. b, the only whole member, has it not, and a comes back with most of the files."""
    manager = Manager("ab")
    manager.resolve("a")
    manager.beat("b", Report(GROUP, manager.group().epoch, True, 100, (written(6),)))
    manager.lose("a")
    manager.lose("b")
    assert manager.members() == "b"
    manager.register("c", Report(GROUP, NO_EPOCH, False, 10, (written(7),)))
    assert manager.members() == "bc?"
    manager.now += 1
    manager.register("a", Report(GROUP, NO_EPOCH, False, 100, (written(6),)), process="second")
    assert manager.members() == "bc?"
