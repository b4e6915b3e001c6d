"""Workers that come back after a query was taken back, or with groups that nobody uses."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import Epoch, GroupId, StoreId, StoreVersion, Version
from tests.replication_manager.protocol.harness import GROUP, STORE, Manager


def holding(number: int, branch: str, group: GroupId = GROUP, epoch: Epoch | None = None) -> Report:
    version = StoreVersion(StoreId(*group, "default"), Version(number, branch))
    return Report(group, epoch or Epoch(1, 1), epoch is not None, 10, (version,), (), 1)


def come_back(manager: Manager, members: tuple[int, str], returned: tuple[int, str]) -> str:
    """The members after a worker came back that had been replaced; everybody says the newest version that it has."""
    manager.resolve("a")
    manager.lose("b")
    assert manager.members() == "ac?"
    for name in "ac":
        manager.beat(name, holding(*members, epoch=manager.group().epoch))
        manager.beat(name, holding(*members, epoch=manager.group().epoch))
    assert manager.members() == "ac"
    manager.register("b", holding(*returned), process="again")
    manager.now += 0.5
    manager.beat_all()
    return manager.members()


def log(manager: Manager, number: int, branch: str) -> None:
    manager.do(ev.BatchPublished("job", number - 1, (StoreVersion(STORE, Version(number, branch)),), ()))


def three() -> Manager:
    manager = Manager("ab")
    manager.resolve("a")
    manager.register("c")
    return manager


@pytest.mark.parametrize(
    ("members", "returned", "logged", "joins"),
    [
        ((9, "old"), (7, "new"), (7, "new"), True),  # taken back to 6: the only copy of what was logged since
        ((9, "old"), (6, "new"), (7, "new"), True),
        ((7, "new"), (6, "new"), (7, "new"), False),
        ((8, "new"), (6, "new"), (7, "new"), False),  # one batch is under way
        ((7, "new"), (9, "old"), (7, "new"), True),  # nobody knows yet which branch goes on
        ((7, "new"), (7, "new"), (7, "new"), False),
        ((9, "x"), (7, "x"), None, False),  # of a manager that has heard of no batch yet
        ((7, "x"), (9, "x"), None, True),
    ],
)
def test_a_later_number_of_a_lost_branch_covers_nothing(
    members: tuple[int, str], returned: tuple[int, str], logged: tuple[int, str] | None, joins: bool
) -> None:
    manager = three()
    if logged:
        log(manager, 9, "old")
        log(manager, *logged)
    assert (come_back(manager, members, returned)[-2:] == "b?") is joins


def due(manager: Manager) -> set[GroupId]:
    """Groups about which a heartbeat of any worker makes the manager think."""
    machine = manager.machine
    return {group for name in "abc" for group in machine.returned.groups(name, machine.member_of)}


def test_reports_of_groups_that_nobody_uses_cost_nothing_until_somebody_does() -> None:
    manager = Manager("bc")
    unused = [GroupId("stopped", 0, partition) for partition in range(1000)]
    manager.register("a", *(holding(3, "x", group) for group in unused))
    assert due(manager) == set()
    manager.resolve("b", unused[7])
    assert due(manager) <= {unused[7]}
    manager.now += 0.5
    manager.beat_all()
    assert due(manager) == set()
    assert manager.group(unused[7]).member("a") is not None, "who has the files is one of the members"


def test_holders_for_which_there_was_no_place_join_as_sources() -> None:
    manager = Manager("bc")
    unused = GroupId("stopped", 0, 7)
    manager.register("a", holding(3, "x", unused))
    manager.register("d", holding(4, "x", unused))
    manager.resolve("b", unused)
    assert len(manager.group(unused).members) == 2
    manager.now += 0.5
    manager.beat_all()
    assert {member.worker.worker_id for member in manager.group(unused).members} == {"a", "b", "d"}


def test_what_is_forgotten_waits_no_more() -> None:
    manager = Manager("bc")
    manager.register("a", holding(3, "x", GroupId("stopped", 0, 1)), holding(3, "x", GroupId("other", 0, 1)))
    manager.do(ev.JobForgotten("stopped"))
    assert set(manager.machine.returned._waiting) == {GroupId("other", 0, 1)}
    manager.lose("a")
    manager.do(ev.WorkerForgotten("a"))
    assert not manager.machine.returned._waiting
