"""A manager that has lost its journal: it hears of absent workers, and makes no group before they can answer."""

from __future__ import annotations

import pytest

from replication_manager.protocol import events as ev
from replication_manager.protocol.workers.worker_record import Report, WorkerState
from rhino_core.errors import UnavailableError
from rhino_core.ids import Epoch, StoreVersion, Version
from tests.replication_manager.protocol.harness import GROUP, STORE, Manager, worker
from tests.simulation.sizes import sizes

FORMER = Epoch(1_000, 20)
HELD = (StoreVersion(STORE, Version(7, "id7")),)
NEW = 5_000  # as the wall clock gives it: above all that the lost journal had


def old_report(*, whole: bool = True) -> Report:
    return Report(GROUP, FORMER, whole, 10, HELD)


def test_workers_that_others_name_are_known_as_after_any_restart() -> None:
    manager = Manager(generation=NEW, fresh=True)
    manager.register("a", seen=FORMER, known="abc")
    assert {name: r.state for name, r in manager.machine.membership.records.items()} == {
        "a": WorkerState.LIVE,
        "b": WorkerState.SUSPECT,
        "c": WorkerState.SUSPECT,
    }
    assert manager.workers == {name: worker(name) for name in "abc"}
    manager.a_lease_later()
    assert manager.machine.membership.records["b"].state is WorkerState.LOST  # absent: asked for, and not forgotten


def test_no_group_is_made_before_those_who_may_hold_it_have_registered_or_are_lost() -> None:
    manager = Manager(generation=NEW, fresh=True)
    manager.register("a", seen=FORMER, known="abc")
    with pytest.raises(UnavailableError, match=r"empty journal.*b, c"):
        manager.resolve("a")
    manager.register("b", old_report(), seen=FORMER, known="abc")
    with pytest.raises(UnavailableError, match="not registered yet: c"):
        manager.resolve("a")
    manager.register("c", old_report(whole=False), seen=FORMER, known="abc")
    manager.resolve("a")
    assert manager.members() == "ba?"  # who was whole under the former manager, not who came first
    assert manager.group().epoch > FORMER


def test_who_is_away_keeps_nobody_waiting_for_longer_than_a_lease_and_is_heard_when_it_comes() -> None:
    manager = Manager(generation=NEW, fresh=True)
    manager.register("a", seen=FORMER, known="abc")
    manager.register("b", seen=FORMER, known="abc")
    manager.a_lease_later()
    manager.resolve("a")
    assert manager.members() == "ab"
    manager.register("c", old_report(), seen=FORMER)
    manager.now += 0.1
    for name in "ab":
        manager.beat(name)
    assert manager.members() == "abc?"  # a source of what the others lack
    assert manager.group().epoch > FORMER


def test_a_worker_that_was_forgotten_since_is_not_named_into_life_again() -> None:
    manager = Manager(generation=NEW, fresh=True)
    manager.register("a", known="ab")
    manager.a_lease_later()
    manager.do(ev.WorkerForgotten("b"))
    manager.register("c", known="abc")
    assert set(manager.machine.membership.records) == {"a", "c"}


def test_few_of_those_that_were_forgotten_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lifetime of a journal may last for years."""
    monkeypatch.setattr("replication_manager.protocol.workers.bootstrap.GIVEN_UP_MAX", 2)
    manager = Manager(generation=NEW, fresh=True)
    manager.register("a", known="abcd")
    manager.a_lease_later()
    for name in "bcd":
        manager.do(ev.WorkerForgotten(name))
    assert sizes([manager.machine])["Bootstrap._given_up"] == 2
    manager.register("e", known="cd")
    assert set(manager.machine.membership.records) == {"a", "e"}


def test_a_journal_knows_its_workers_itself() -> None:
    manager = Manager(generation=NEW)
    manager.register("a", known="ab")
    assert set(manager.machine.membership.records) == {"a"}


def test_new_workers_of_a_new_deployment_wait_for_nobody() -> None:
    manager = Manager("ab", generation=NEW, fresh=True)
    manager.resolve("a")
    assert manager.members() == "ab"


def test_a_worker_that_still_names_its_former_life_is_journalled_as_it_lives_now() -> None:
    manager = Manager(generation=NEW, fresh=True)
    manager.register("a", incarnation=2, seen=FORMER, known="ab")
    assert manager.workers["a"] == worker("a", 2)
