"""Who may send, fetch and have files of a group, as sidecars ask the manager."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report
from rhino_core.ids import NO_EPOCH, JobSettings
from tests.replication_manager.protocol.harness import GROUP, Manager, written

ONE_COPY = JobSettings(replication_factor=0)


def users(manager: Manager) -> str:
    return "".join(name for name in "abcdex" if manager.machine.may_use(GROUP, name))


def test_members_and_workers_beside_executors_of_the_query_use_its_files() -> None:
    manager = Manager("abcde")
    manager.resolve("a", settings=ONE_COPY)
    manager.do(ev.ExecutorsNamed("other", frozenset("e")))
    manager.do(ev.ExecutorsNamed("job", frozenset("bx"), frozenset({"host-c"})))
    assert users(manager) == "abc", "x has not registered"


def test_while_no_driver_has_named_executors_only_a_query_that_has_never_run_is_open() -> None:
    """Branches and restructured queries get their files before they run."""
    manager = Manager("ab")
    manager.resolve("a", settings=ONE_COPY)
    assert users(manager) == "ab"
    manager.do(ev.BatchPublished("job", 1, (written(1),), (written(1),)))
    assert users(manager) == "a"
    manager.restart()
    assert users(manager) == "a"
    manager.do(ev.ExecutorsNamed("job", frozenset("b")))
    assert users(manager) == "ab"


def test_members_workers_that_report_files_and_those_not_heard_yet_may_have_files() -> None:
    manager = Manager("abcd")
    manager.resolve("a", settings=ONE_COPY)
    manager.beat("b", Report(GROUP, NO_EPOCH, False, 10, stored_files=1))
    manager.beat("c", Report(GROUP, NO_EPOCH, False, 0))
    assert manager.machine.may_hold(GROUP) == ["a", "b"]
    manager.lose("b")
    manager.lose("d")
    assert manager.machine.may_hold(GROUP) == ["a", "b"], "d is away, and had nothing"
    manager.restart()
    manager.register("a")
    assert manager.machine.may_hold(GROUP) == ["a", "b", "c", "d"]
    manager.register("c")
    assert manager.machine.may_hold(GROUP) == ["a", "b", "d"]


def test_a_worker_that_was_lost_before_its_first_report_may_hold_the_group() -> None:
    """It may have logged a batch alone. "Lost" would be wrong, and a rewind would discard the batch."""
    manager = Manager()
    for name in "abc":
        manager.register(name)
    manager.resolve("a")
    manager.lose("a")
    assert manager.group().member("a") is None
    assert "a" in manager.machine.may_hold(GROUP)
    manager.register("a")
    assert "a" not in manager.machine.may_hold(GROUP), "it says that it has nothing"


def test_a_guest_that_was_lost_before_its_first_report_may_hold_the_group() -> None:
    manager = Manager()
    for name in "abc":
        manager.register(name)
    manager.resolve("a", settings=ONE_COPY)
    assert manager.machine.may_hold(GROUP) == ["a"]
    manager.resolve("c", settings=ONE_COPY)
    manager.lose("c")
    assert manager.machine.may_hold(GROUP) == ["a", "c"]
    manager.do(ev.JobForgotten(GROUP.job))
    assert manager.machine.may_hold(GROUP) == []
