"""Jobs that have ended for good and workers that are lost for good, by events and effects."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.errors import PreconditionError, UnknownError
from rhino_core.ids import Epoch, GroupId, JobSettings
from tests.replication_manager.protocol.harness import GROUP, STORE, Manager, written
from tests.simulation.sizes import sizes

OTHER = GroupId("other", 0, 0)


def test_a_forgotten_job_leaves_the_journal_under_a_fence_above_all_its_epochs() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.resolve("a", GroupId("job", 1, 3))
    other = manager.resolve("a", OTHER)
    manager.do(ev.BatchPublished("job", 1, (written(2),), (written(1),)))
    highest = max(group.epoch for group in manager.groups.values())
    effects = manager.do(ev.JobForgotten("job"))
    assert [type(e) for e in effects] == [ev.PersistForgotten, ev.DropGroups, ev.PublishForgotten]
    assert manager.forgotten["job"] > highest
    assert (list(manager.groups), manager.floors) == ([OTHER], {})
    assert manager.group(OTHER) == other


def test_of_forgotten_jobs_the_fences_alone_stay() -> None:
    manager = Manager("ab")
    before = sizes([manager.machine])
    for number in range(20):
        group = GroupId(f"job{number}", 0, 0)
        manager.resolve("a", group)
        manager.do(ev.JobForgotten(group.job))
    grown = {place for place, size in sizes([manager.machine]).items() if size > before[place]}
    assert grown == {"Chains.fences"}


def test_nobody_makes_a_forgotten_job_anew_also_after_a_restart() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.do(ev.JobForgotten("job"))
    for _ in range(2):
        with pytest.raises(PreconditionError, match=r"forgotten.*new checkpoint"):
            manager.resolve("a")
        assert manager.do(ev.BatchPublished("job", 9, (written(9),), (written(8),))) == []
        assert STORE not in manager.machine.logged.floors
        manager.restart()
        manager.register("a", Report(GROUP, Epoch(1, 1), True, 10, stored_files=3))
        manager.register("b")
    assert [type(e) for e in manager.do(ev.JobForgotten("job"))] == [ev.PublishForgotten], "again is harmless"


def test_a_job_of_which_only_files_are_left_can_be_forgotten_and_an_unknown_one_not() -> None:
    manager = Manager("b")
    with pytest.raises(UnknownError, match="job"):
        manager.do(ev.JobForgotten("job"))
    manager.register("a", Report(GROUP, Epoch(1, 1), True, 10, stored_files=3))
    manager.do(ev.JobForgotten("job"))
    assert "job" in manager.forgotten


def test_a_live_worker_is_not_forgotten_and_an_unknown_one_named() -> None:
    manager = Manager("ab")
    for name in ("a", "x"):
        with pytest.raises((PreconditionError, UnknownError), match=f"'{name}'"):
            manager.do(ev.WorkerForgotten(name))


def test_groups_of_a_forgotten_worker_go_on_with_the_others_and_one_without_others_ends() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    alone = GroupId("alone", 0, 0)
    epoch = manager.resolve("a", alone, JobSettings(0)).epoch
    manager.lose("a")
    assert manager.members(alone) == "a", "its only holder may come back"
    effects = manager.do(ev.WorkerForgotten("a"))
    assert effects[0] == ev.DropWorker("a")
    assert isinstance(effects[-1], ev.PublishWorkers)
    assert "a" not in manager.workers
    assert alone not in manager.groups
    assert "a" not in manager.members()
    assert manager.resolve("b", alone, JobSettings(0)).epoch > epoch
    manager.restart()
    assert "a" not in manager.machine.membership.records


def test_a_member_that_was_catching_up_owns_what_is_left_and_becomes_whole() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.lose("b")
    manager.register("b", incarnation=2)
    assert manager.members() == "ab?"
    manager.lose("a")
    assert manager.members() == "ab?", "only a is whole: it is waited for"
    manager.do(ev.WorkerForgotten("a"))
    assert manager.members() == "b?"
    manager.beat("b", Report(GROUP, manager.group().epoch, True, 10), incarnation=2)
    assert manager.members() == "b"
