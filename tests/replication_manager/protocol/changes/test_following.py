"""Workers that write logged batches of groups in which they are no members."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.groups import logged
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import NO_EPOCH, DiskState, JobSettings
from tests.replication_manager.protocol.harness import GROUP, Manager, worker, written

STREAK = 4


@pytest.fixture(autouse=True)
def short_streak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged, "GUEST_STREAK", STREAK)


class Query:
    """Logs batches of the one group, each written by a worker."""

    def __init__(self, names: str, settings: JobSettings | None = None) -> None:
        self.manager = Manager(names)
        self.manager.resolve(names[0], settings=settings)
        members = self.manager.members()
        self.owner, self.secondary = members[:1], members[1:2]
        self.guest = next(name for name in names if name not in self.manager.members())
        self.number = 0

    def batch(self, writer: str) -> None:
        """It is whole when it says that it was."""
        self.number += 1
        manager = self.manager
        manager.do(ev.BatchPublished("job", self.number - 1, (written(self.number),), ()))
        member = manager.group().member(writer)
        manager.beat(writer, self.report(whole=member is not None and member.whole))

    def report(self, *, whole: bool) -> Report:
        return Report(GROUP, self.manager.group().epoch, whole, 10, (), (written(self.number),))

    def batches(self, writer: str, count: int = STREAK) -> None:
        for _ in range(count):
            self.batch(writer)


def test_a_guest_that_goes_on_writing_joins_and_owns_the_group_once_it_is_whole() -> None:
    query = Query("abc")
    query.batches(query.guest, STREAK - 1)
    assert query.manager.members() == query.owner + query.secondary
    query.batch(query.guest)
    assert query.manager.members() == f"{query.owner}{query.secondary}{query.guest}?"
    query.manager.beat(query.guest, query.report(whole=True))
    assert query.manager.members() == query.guest + query.owner
    for name in query.manager.members():
        query.manager.whole(name)
    assert query.manager.members() == query.guest + query.owner


def test_without_secondaries_the_former_owner_leaves() -> None:
    query = Query("ab", JobSettings(0))
    query.batches("b")
    query.manager.beat("b", query.report(whole=True))
    assert query.manager.members() == "b"


def test_two_that_take_turns_change_nothing() -> None:
    query = Query("abcd")
    before = query.manager.group()
    others = [name for name in "abcd" if name not in query.manager.members()]
    for _ in range(3 * STREAK):
        query.batches(others[0], STREAK - 1)
        query.batch(others[1])
    assert query.manager.group() == before


def test_batches_elsewhere_while_slots_are_taken_change_nothing() -> None:
    query = Query("abc")
    before = query.manager.group()
    for _ in range(STREAK):
        query.batches(query.guest, STREAK - 1)
        query.batch(query.owner)
    assert query.manager.group() == before


def test_a_guest_that_ceases_to_write_before_it_is_whole_leaves_again() -> None:
    query = Query("abc")
    query.batches(query.guest)
    query.batch(query.owner)
    query.manager.beat(query.guest, query.report(whole=True))
    assert query.manager.members() == query.owner + query.secondary + query.guest
    for name in query.manager.members():
        query.manager.whole(name)
    assert query.manager.members() == query.owner + query.secondary


def test_a_guest_that_ceases_takes_nobody_else_with_it() -> None:
    """A handover has added its target meanwhile."""
    query = Query("abcd")
    (target,) = (name for name in "abcd" if name not in query.manager.members() + query.guest)
    query.batches(query.guest)
    query.batch(query.owner)
    query.manager.do(ev.Change(GROUP, target, ""))
    for name in query.manager.members().replace("?", ""):
        query.manager.whole(name)
    for name in query.manager.members():
        query.manager.whole(name)
    assert sorted(query.manager.members()) == sorted(query.owner + query.secondary + target)


def marked_and_origin_back() -> Query:
    """A handover from a to c is past its marker. The sidecar of a was lost and is back; its executor still writes."""
    query = Query("abc")
    manager = query.manager
    manager.do(ev.Change(GROUP, "c", ""))
    manager.whole("c")
    assert manager.members() == "abc"
    manager.lose("a")
    assert manager.members() == "bc"
    manager.now += 1
    manager.register("a", Report(GROUP, NO_EPOCH, False, 10, (written(7),)), process="second")
    manager.now += 1
    for name in "bc":
        manager.beat(name, Report(GROUP, manager.group().epoch, True, 10, (written(6),)))
    assert manager.members() == "bca?"
    query.batches("a", logged.OWNER_STREAK)
    return query


def test_the_target_of_a_handover_stays_while_the_origin_comes_back_and_owns_the_group() -> None:
    query = marked_and_origin_back()
    manager = query.manager
    query.number += 1
    manager.do(ev.BatchPublished("job", query.number - 1, (written(query.number),), ()))
    manager.beat("a", query.report(whole=True))
    assert manager.members() == "abc", "the handover needs its target"
    for name in "bca":
        manager.whole(name)
    assert manager.members() == "ac", "the source leaves in its turn, and never the target"
    manager.do(ev.Change(GROUP, "", "c"))
    assert manager.members() == "ca"


def with_target_in_place_of_another() -> Query:
    """A handover from a has added c, and b was lost since, so that the chain is not too long."""
    query = Query("abc")
    query.manager.do(ev.Change(GROUP, "c", ""))
    query.manager.whole("c")
    query.manager.lose("b")
    assert query.manager.members() == "ac"
    assert query.manager.machine.returned.targets(GROUP) == {"c"}
    return query


def test_a_target_that_becomes_the_owner_by_writing_is_no_target_any_more() -> None:
    """Seed 206674, factor 1: it stayed for ever when another member owned the group, and the chain was too long."""
    query = with_target_in_place_of_another()
    query.batches("c", logged.OWNER_STREAK)
    assert query.manager.members() == "ca"
    assert not query.manager.machine.returned.targets(GROUP)


def test_a_handover_that_names_the_present_owner_has_no_target_any_more() -> None:
    query = with_target_in_place_of_another()
    query.manager.do(ev.Change(GROUP, "", "a"))
    assert query.manager.members() == "ac"
    assert not query.manager.machine.returned.targets(GROUP)


def test_a_member_takes_the_place_of_one_that_was_lost_while_the_guest_joined() -> None:
    query = Query("abc")
    query.batches(query.guest)
    query.manager.lose(query.secondary)
    assert query.manager.members() == f"{query.owner}{query.guest}?"
    query.manager.beat(query.guest, query.report(whole=True))
    assert query.manager.members() == query.guest + query.owner


def test_a_restarted_manager_takes_a_guest_that_has_joined_for_a_member_that_writes() -> None:
    query = Query("abc")
    query.batches(query.guest)
    manager = query.manager
    manager.restart()
    for name in "abc":
        manager.register(name)
    manager.whole(query.guest)
    query.batches(query.guest, 2)
    assert manager.members() == query.guest + query.owner


@pytest.mark.parametrize("why", ["draining", "full"])
def test_some_guests_stay_guests(why: str) -> None:
    query = Query("abcd")
    if why == "draining":
        query.manager.do(ev.DrainSet(query.guest, True))
    if why == "full":
        beat = ev.Beat(query.guest, worker(query.guest).incarnation, 0, 0, 0, 0, (), DiskState.FULL)
        query.manager.do(beat)
        query.manager.do(ev.BatchPublished("job", 0, tuple(written(n) for n in range(1, 9)), ()))
        for number in range(1, 9):
            said = Report(GROUP, query.manager.group().epoch, False, 10, (), (written(number),))
            query.manager.do(replace(beat, changed=(said,)))
    else:
        query.batches(query.guest, 2 * STREAK)
    assert query.manager.group().member(query.guest) is None


def test_a_streak_ends_with_the_owner() -> None:
    """Who wrote before may have been lost since, and the manager may not hear of the batches of others."""
    query = Query("abc")
    query.batches(query.guest, STREAK - 1)
    query.manager.lose(query.owner)
    assert query.manager.members() == f"{query.secondary}{query.guest}?"
    query.manager.whole(query.guest)
    query.batch(query.guest)
    assert query.manager.members() == query.secondary + query.guest, "one batch since the owner was lost"
    query.batch(query.guest)
    assert query.manager.members() == query.guest + query.secondary
