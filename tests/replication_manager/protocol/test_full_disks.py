"""Workers whose disk is full or failing: out of the placement of new members until they take files again."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.errors import PreconditionError, TooFewWorkersError
from rhino_core.ids import DiskState, Epoch, GroupId, JobSettings
from tests.replication_manager.protocol.harness import GROUP, Manager, worker
from tests.replication_manager.support.full_disks import say


@pytest.mark.parametrize("disk", [DiskState.FULL, DiskState.FAILING])
def test_neither_new_groups_nor_replacements_go_there(disk: DiskState) -> None:
    manager = Manager("abc")
    say(manager, "b", disk)
    for partition in range(4):
        manager.resolve("a", GroupId("job", 0, partition))
    assert {manager.members(g) for g in manager.groups} == {"ac"}
    manager.lose("c")
    assert {manager.members(g) for g in manager.groups} == {"a"}
    say(manager, "b", DiskState.OK)
    assert {manager.members(g) for g in manager.groups} == {"ab?"}, "as soon as it takes files again"


def test_the_refusal_names_who_is_full() -> None:
    manager = Manager("ab")
    say(manager, "b", DiskState.FULL)
    with pytest.raises(TooFewWorkersError, match=r"2 are live, not taking files: b \(full disk\)"):
        manager.resolve("a")


def test_present_members_stay_and_a_handover_there_is_refused() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    secondary = manager.members()[1]
    say(manager, secondary, DiskState.FULL)
    assert manager.members() == f"a{secondary}?"
    other = ({"b", "c"} - {secondary}).pop()
    say(manager, other, DiskState.FAILING)
    with pytest.raises(PreconditionError, match=f"disk failing, disk of {other}"):
        manager.do(ev.Change(GROUP, other, ""))


def test_it_is_known_from_the_registration_on() -> None:
    manager = Manager("ac")
    manager.do(ev.Registered(worker("b"), "b-process", Epoch(0, 0), (), DiskState.FAILING, "EIO"))
    assert manager.resolve("a", settings=JobSettings(1)).members[1].worker.worker_id == "c"


def test_a_full_worker_that_holds_a_group_of_a_lost_journal_is_its_member_again() -> None:
    manager = Manager("a")
    report = Report(GROUP, Epoch(1, 5), True, 10)
    manager.do(ev.Registered(worker("b"), "b-process", Epoch(1, 5), (report,), DiskState.FULL, "full"))
    manager.register("c")
    manager.resolve("a")
    assert manager.members() == "ba?"
