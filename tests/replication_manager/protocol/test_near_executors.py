"""Copies are placed where executors of the job live, as far as nothing speaks against it."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import GroupId
from tests.replication_manager.protocol.harness import GROUP, Manager


def near(manager: Manager, workers: str, job: str = "job") -> None:
    manager.do(ev.ExecutorsNamed(job, frozenset(workers)))


def test_secondaries_are_where_executors_are() -> None:
    manager = Manager("abcd")
    near(manager, "ad")
    for partition in range(4):
        manager.resolve("a", GroupId("job", 0, partition))
        assert manager.members(GroupId("job", 0, partition)) == "ad"
    manager.resolve("a", GroupId("other", 0, 0))
    assert manager.members(GroupId("other", 0, 0)) == "ab", "executors of another query"


def test_an_executor_that_has_not_reported_its_worker_counts_by_its_host() -> None:
    manager = Manager("abcd")
    manager.do(ev.ExecutorsNamed("job", frozenset("a"), frozenset({"host-d"})))
    for partition in range(4):
        manager.resolve("a", GroupId("job", 0, partition))
        assert manager.members(GroupId("job", 0, partition)) == "ad"


def test_nothing_moves_when_executors_do_but_a_replacement_goes_there() -> None:
    manager = Manager("abcd")
    near(manager, "ab")
    manager.resolve("a")
    near(manager, "ad")
    assert manager.members() == "ab"
    manager.lose("b")
    assert manager.members() == "ad?"


def test_who_has_the_files_comes_first() -> None:
    manager = Manager("abcd")
    near(manager, "ab")
    manager.resolve("a")
    manager.beat("a", Report(GROUP, manager.group().epoch, True, 100))
    manager.beat("c", Report(GROUP, manager.group().epoch, False, 90))
    near(manager, "ad")
    manager.lose("b")
    assert manager.members() == "ac?"


def test_where_no_worker_is_near_all_are_equal() -> None:
    manager = Manager("abc")
    near(manager, "xyz")
    assert len(manager.resolve("a").members) == 2


def test_a_forgotten_job_is_not_remembered_for_its_executors() -> None:
    manager = Manager("ab")
    near(manager, "a")
    manager.resolve("a")
    manager.do(ev.JobForgotten("job"))
    near(manager, "b")
    assert manager.machine._placing._executors == {}
