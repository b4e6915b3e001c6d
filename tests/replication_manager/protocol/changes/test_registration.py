"""A sidecar that is stopped is waited for, and has its place again even if it comes back late."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.placement.lagging import PROOF_S
from replication_manager.protocol.workers.membership import RETURN_LEASE_S
from replication_manager.protocol.workers.worker_record import Lag, Report
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


def test_it_does_not_when_it_may_take_nothing() -> None:
    manager = three()
    manager.beat("a", stores(1000, whole=True, manager=manager))
    stop(manager, "b")
    pass_by(manager, RETURN_LEASE_S + 1)
    report = stores(900, manager=manager)
    manager.do(ev.Registered(manager.workers["b"], "b-again", NO_EPOCH, (report,), DiskState.FULL, "full"))
    assert manager.members() == "ac?"


def test_a_restarted_manager_waits_for_the_last_of_many_sidecars_as_long_as_others_come() -> None:
    """1000 registrations take some seconds, and nothing moves meanwhile. One that stays away is lost in the end."""
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
