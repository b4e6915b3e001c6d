"""A sidecar that is stopped is waited for, and has its place again even if it comes back late."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.placement.lagging import PROOF_S
from replication_manager.protocol.workers.membership import RETURN_LEASE_S
from replication_manager.protocol.workers.worker_record import Lag, Report
from rhino_core.errors import PreconditionError, UnavailableError
from rhino_core.ids import NO_EPOCH, BelowMinCopies, DiskState, JobSettings
from tests.replication_manager.protocol.harness import GROUP, Manager

BLOCK = JobSettings(below_min_copies=BelowMinCopies.BLOCK)


def three(settings: JobSettings | None = None) -> Manager:
    """A group of "a" with the secondary "b"; "c" is free."""
    manager = Manager("abc")
    manager.resolve("a", settings=settings)
    assert manager.members() == "ab"
    return manager


def stop(manager: Manager, name: str) -> None:
    manager.do(ev.Leaving(name, f"{name}-process"))
    manager.do(ev.StreamBroken(name, f"{name}-process"))
    manager.do(ev.Refused(name, f"{name}-process"))


def pass_by(manager: Manager, seconds: float) -> None:
    for _ in range(round(seconds)):
        manager.now += 1.0
        manager.beat_all()
        manager.do(ev.Tick())


def stores(size: int, *, whole: bool = False, manager: Manager) -> Report:
    return Report(GROUP, manager.group().epoch if whole else NO_EPOCH, whole, size)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_restart_moves_no_copy_and_no_ownership_and_stops_no_commit(name: str) -> None:
    manager = three()
    stop(manager, name)
    less = manager.members()
    assert (less, manager.group().required_copies) == ("ab".replace(name, f"{name}?"), 1)
    pass_by(manager, RETURN_LEASE_S - 2)
    assert manager.members() == less
    manager.register(name, process=f"{name}-again")
    manager.whole(name)
    assert (manager.members(), manager.group().required_copies) == ("ab", 2)


def test_its_lag_meanwhile_is_no_reason_to_replace_it() -> None:
    manager = three()
    manager.now += 1.0
    manager.beat_all()
    lags = (Lag(GROUP, "b", 10, 1000.0),)
    manager.do(ev.Beat("a", "a/1", 0, 0, 0, 0, (), lags=lags))
    stop(manager, "b")
    for _ in range(round(PROOF_S) + 2):
        manager.now += 1.0
        manager.beat("c")
        manager.do(ev.Beat("a", "a/1", 0, 0, 0, 0, (), lags=lags))
        manager.do(ev.Tick())
    assert manager.members() == "ab?"


def test_block_waits_for_the_restart_and_not_for_a_whole_copy() -> None:
    manager = three(BLOCK)
    epoch = manager.group().epoch
    stop(manager, "b")
    pass_by(manager, RETURN_LEASE_S - 2)
    manager.register("b", process="b-again")
    assert (manager.members(), manager.group().epoch) == ("ab", epoch)


def test_one_that_does_not_come_back_is_replaced() -> None:
    manager = three()
    stop(manager, "b")
    pass_by(manager, RETURN_LEASE_S + 1)
    assert manager.members() == "ac?"


def test_one_that_was_drained_is_not_waited_for() -> None:
    manager = three()
    manager.do(ev.DrainSet("b", True))
    assert manager.members() == "abc?"
    stop(manager, "b")
    assert manager.members() == "ac?"


def test_a_rolling_restart_never_leaves_less_than_it_must() -> None:
    manager = three()
    for name in "bac":
        stop(manager, name)
        pass_by(manager, 2)
        manager.register(name, process=f"{name}-again")
        if name in manager.members():
            manager.whole(name)
        assert manager.members() == "ab"


def test_who_comes_back_late_takes_its_place_from_a_member_that_has_less() -> None:
    manager = three()
    manager.beat("a", stores(1000, whole=True, manager=manager))
    stop(manager, "b")
    pass_by(manager, RETURN_LEASE_S + 1)
    manager.beat("c", stores(100, manager=manager))
    manager.register("b", stores(900, manager=manager), process="b-again")
    assert manager.members() == "ab?"
    manager.whole("b")
    assert manager.members() == "ab"


@pytest.mark.parametrize(("returned", "replacement"), [(400, 0), (900, 600)])
def test_it_does_not_when_it_has_little_or_the_other_has_enough(returned: int, replacement: int) -> None:
    manager = three()
    manager.beat("a", stores(1000, whole=True, manager=manager))
    stop(manager, "b")
    pass_by(manager, RETURN_LEASE_S + 1)
    manager.beat("c", stores(replacement, manager=manager))
    manager.register("b", stores(returned, manager=manager), process="b-again")
    assert manager.members() == "ac?"


def test_it_does_not_when_it_may_take_nothing() -> None:
    manager = three()
    manager.beat("a", stores(1000, whole=True, manager=manager))
    stop(manager, "b")
    pass_by(manager, RETURN_LEASE_S + 1)
    report = stores(900, manager=manager)
    manager.do(ev.Registered(manager.workers["b"], "b-again", NO_EPOCH, (report,), DiskState.FULL, "full"))
    assert manager.members() == "ac?"


def test_a_target_of_a_handover_keeps_its_place() -> None:
    manager = Manager("abcd")
    manager.resolve("a")
    gone = manager.members()[1]
    free = sorted({"b", "c", "d"} - {gone})
    manager.beat("a", stores(1000, whole=True, manager=manager))
    stop(manager, gone)
    pass_by(manager, RETURN_LEASE_S + 1)
    added = manager.members()[1]
    (target,) = set(free) - {added}
    manager.do(ev.Change(GROUP, None, target, ""))
    manager.register(gone, stores(900, manager=manager), process="again")
    assert manager.members() == f"a{added}?{target}?"


def test_a_replacement_is_somebody_who_has_the_files_already() -> None:
    manager = Manager("abcd")
    manager.resolve("a")
    gone = manager.members()[1]
    holder = max({"b", "c", "d"} - {gone})
    manager.beat("a", stores(1000, whole=True, manager=manager))
    manager.beat(holder, stores(900, manager=manager))
    manager.lose(gone)
    assert manager.members() == f"a{holder}?"


def test_who_has_said_farewell_has_to_register_again() -> None:
    manager = three()
    stop(manager, "b")
    with pytest.raises(UnavailableError, match="register again"):
        manager.beat("b")


def test_who_has_been_stopped_may_be_forgotten_at_once() -> None:
    manager = three()
    with pytest.raises(PreconditionError, match="stop its sidecar first"):
        manager.do(ev.WorkerForgotten("b"))
    stop(manager, "b")
    manager.do(ev.WorkerForgotten("b"))
    assert manager.members() == "ac?"


def test_a_restarted_manager_waits_for_the_last_of_many_sidecars_as_long_as_others_come() -> None:
    """1000 registrations take some seconds, and nothing moves meanwhile. Who does not come is lost in the end."""
    manager = Manager("abcdef")
    manager.resolve("a")
    owner, copy = manager.members()[0], manager.members()[1]
    manager.restart()
    for name in sorted(set("cdef") - {owner, copy}):
        manager.now += 4.0
        manager.register(name)
        manager.beat_all()
        manager.do(ev.Tick())
    assert manager.members() == owner + copy, "nobody of the group has come yet, 16 s after the start"
    manager.now += 4.0
    manager.register(owner, Report(GROUP, manager.group().epoch, True, 1))
    pass_by(manager, 4)
    assert manager.members() == owner + copy
    pass_by(manager, 2)
    assert copy not in manager.members(), "it had one lease from the newest return"
