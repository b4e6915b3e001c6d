"""A manager that hears nobody is cut off itself: it moves nothing, and waits a lease for those it has missed."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import WorkerState
from rhino_core.errors import UnavailableError
from tests.replication_manager.protocol.harness import Manager


def state(manager: Manager, name: str) -> WorkerState:
    return manager.machine.membership.records[name].state


def cut_off(manager: Manager, order: str, *, broken: bool) -> None:
    """The workers fall silent one after the other, in the rhythm of heartbeats. `broken`: their connections break."""
    for name in order:
        manager.beat(name)
        manager.now += 0.15
    for name in order:
        if broken:
            manager.do(ev.StreamBroken(name, f"{name}-process"))
        manager.now += 0.15
    for _ in range(60):
        manager.now += 0.1
        manager.do(ev.Tick())


@pytest.mark.parametrize("broken", [True, False])
@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_nothing_is_moved_while_it_is_cut_off_nor_when_it_hears_them_again(order: str, broken: bool) -> None:
    manager = Manager("abc")
    before = manager.resolve("a")
    cut_off(manager, order, broken=broken)
    assert [state(manager, name) for name in "abc"] == [WorkerState.LOST] * 3
    for name in reversed(order):
        manager.now += 1.0
        manager.register(name, process=f"{name}-process")
        assert manager.group() == before
    assert [state(manager, name) for name in "abc"] == [WorkerState.LIVE] * 3


@pytest.mark.parametrize("tenths", range(1, 80))
@pytest.mark.parametrize("first", "abc")
def test_the_others_have_a_lease_whenever_the_first_one_is_heard_again(first: str, tenths: int) -> None:
    """Also when that is just before, or at the moment when, their leases end."""
    manager = Manager("abc")
    before = manager.resolve("a")
    for name in "abc":
        manager.do(ev.StreamBroken(name, f"{name}-process"))
    for _ in range(tenths):
        manager.now = round(manager.now + 0.1, 1)
        if manager.now != tenths / 10:  # the timer may come after the registration
            manager.do(ev.Tick())
    manager.register(first, process=f"{first}-process")
    for _ in range(9):
        manager.do(ev.Tick())
        manager.now += 0.5
        manager.beat(first)
    others = [name for name in "abc" if name != first]
    assert [state(manager, name) for name in others] == [WorkerState.SUSPECT] * 2
    for name in others:
        manager.register(name, process=f"{name}-process")
    assert manager.group() == before


def test_who_does_not_come_back_within_a_lease_is_replaced() -> None:
    manager = Manager("abc")
    manager.resolve("a")
    secondary = manager.members()[1]
    other = ({"b", "c"} - {secondary}).pop()
    cut_off(manager, "abc", broken=False)
    manager.register("a", process="a-process")
    manager.register(other, process=f"{other}-process")
    assert state(manager, secondary) is WorkerState.SUSPECT
    manager.a_lease_later()
    assert manager.members() == f"a{other}?"


def test_they_register_again_before_they_are_heard() -> None:
    manager = Manager("abc")
    cut_off(manager, "abc", broken=False)
    manager.register("a", process="a-process")
    with pytest.raises(UnavailableError, match="'b' is not registered: register again"):
        manager.beat("b")
    manager.register("b", process="b-process")
    manager.beat("b")


def test_losses_that_were_seen_stay_losses() -> None:
    manager = Manager("abcd")
    manager.lose("d")
    cut_off(manager, "abc", broken=True)
    manager.register("a", process="a-process")
    assert state(manager, "d") is WorkerState.LOST


def test_all_that_say_farewell_are_waited_for_once_somebody_is_back() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    for name in "ab":
        manager.do(ev.Leaving(name, f"{name}-process"))
    manager.now += 100.0
    manager.do(ev.Tick())
    assert manager.members() in ("ab", "a?b", "ab?")
    manager.register("b", process="again")
    assert state(manager, "a") is WorkerState.SUSPECT
    manager.whole("b")
    manager.a_lease_later()
    assert state(manager, "a") is WorkerState.LOST
    assert manager.members() == "b"


def test_a_beat_of_one_that_was_not_lost_yet_ends_the_silence_as_well() -> None:
    manager = Manager("ab")
    manager.resolve("a")
    manager.do(ev.StreamBroken("a", "a-process"))
    manager.now += 3.0
    manager.do(ev.Tick())
    assert (state(manager, "a"), state(manager, "b"), manager.members()) == (WorkerState.LOST, WorkerState.LIVE, "ab")
    manager.beat("b")
    assert state(manager, "a") is WorkerState.SUSPECT
    manager.a_lease_later()
    assert (state(manager, "a"), manager.members()) == (WorkerState.LOST, "b")
