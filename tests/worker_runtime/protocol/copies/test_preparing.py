"""What a Prepare answers when a version is found nowhere: LOST only when everybody who may hold it has said so."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rhino_core.errors import UnavailableError
from rhino_core.ids import FileEntry, GroupId, StoreVersion, Worker
from tests.worker_runtime.scenario import STORE, group, version
from worker_runtime.fetch.prepare import Preparer
from worker_runtime.protocol.copies.preparing import Known, PrepareState, Survey
from worker_runtime.protocol.versions.closure import Catalogue
from worker_runtime.statistics import Statistics

ME, B, C = (Worker(name, f"{name}/1", name, f"{name}:1") for name in "abc")
WANTED = StoreVersion(STORE, version(2))
KNOWN = Known(connected=True, live=(ME, B), absent=())


def asked(*workers: Worker, held: tuple[StoreVersion, ...] = ()) -> Survey:
    survey = Survey((WANTED,), ME)
    for worker in workers:
        survey.add(worker, held, ())
    return survey


@pytest.mark.parametrize(
    ("known", "state", "word"),
    [
        (KNOWN, PrepareState.LOST, "no worker holds it; asked: b"),
        (dataclasses.replace(KNOWN, absent=(C,)), PrepareState.UNAVAILABLE, "cannot be asked: c"),
        (dataclasses.replace(KNOWN, live=(ME, B, C)), PrepareState.UNAVAILABLE, "cannot be asked: c"),
        (dataclasses.replace(KNOWN, absent=(C,), may_hold=frozenset("ab")), PrepareState.LOST, "no worker holds it"),
        (
            dataclasses.replace(KNOWN, absent=(C,), may_hold=frozenset("bc")),
            PrepareState.UNAVAILABLE,
            "asked: c (away)",
        ),
        (dataclasses.replace(KNOWN, connected=False), PrepareState.UNAVAILABLE, "manager cannot be asked"),
        (dataclasses.replace(KNOWN, settling=True), PrepareState.UNAVAILABLE, "empty journal"),
    ],
)
def test_lost_takes_everybodys_word(known: Known, state: PrepareState, word: str) -> None:
    verdict, text = asked(B).verdict([WANTED], known, ME)
    assert (verdict, word in text) == (state, True), text


def test_what_is_held_below_the_floor_is_not_lost() -> None:
    state, text = asked(B, held=(WANTED,)).verdict([WANTED], KNOWN, ME)
    assert (state, "below the floor" in text) == (PrepareState.UNAVAILABLE, True)


def test_files_of_another_checksum_are_no_source() -> None:
    survey = Survey((WANTED,), ME)
    first = StoreVersion(STORE, version(1))
    for worker, crc in ((B, 1), (C, 2)):
        survey.add(worker, (), (FileEntry(STORE, f"{version(1)}.changelog", 10, crc),))
    plan = survey.plan(Catalogue().store(STORE), first)
    assert plan is not None
    assert [found.holders for found in plan] == [(B,)]


def test_what_a_member_has_counts_more_than_what_others_claim_or_what_is_here() -> None:
    """Whoever answers first: a stranger may claim any version that it has planted."""
    first = StoreVersion(STORE, version(1))
    genuine, forged = (FileEntry(STORE, f"{version(1)}.changelog", 10, crc) for crc in (1, 2))
    survey = Survey((first,), ME, lambda of: group(1, "b"))
    survey.add(C, (first,), (forged,))
    survey.add(B, (first,), (genuine,))
    here = Catalogue()
    for planted in ((), (forged,)):
        for entry in planted:
            here.add(entry)
        plan = survey.plan(here.store(STORE), first)
        assert plan is not None
        assert [(found.entry, found.holders) for found in plan] == [(genuine, (B,))]


async def test_only_workers_that_may_have_the_version_are_asked() -> None:
    asked: list[str] = []
    manager = SimpleNamespace(connected=True, settling=False, live_workers=lambda: [ME, B, C], absent_workers=list)

    async def may_hold(group: GroupId) -> frozenset[str]:
        return frozenset("b")

    class Peers:
        async def held(self, worker: Worker, versions: list[StoreVersion]) -> list[bool]:
            asked.append(worker.worker_id)
            return [False]

        async def inventory(self, worker: Worker, group: object) -> Any:
            return SimpleNamespace(files=())

    manager.may_hold = may_hold
    assert await prepared(manager, Peers()) is PrepareState.LOST
    assert asked == ["b"]


async def test_who_comes_back_while_others_are_asked_has_not_answered() -> None:
    """c is absent when b is asked, and live when b has answered: it may hold the version."""
    manager = SimpleNamespace(connected=True, settling=False)
    manager.live_workers, manager.absent_workers = lambda: [ME, B], lambda: [C]

    class Peers:
        async def held(self, worker: Worker, versions: list[StoreVersion]) -> list[bool]:
            manager.live_workers, manager.absent_workers = lambda: [ME, B, C], list
            return [False]

        async def inventory(self, worker: Worker, group: object) -> Any:
            return SimpleNamespace(files=())

    assert await prepared(manager, Peers()) is PrepareState.UNAVAILABLE
    assert await prepared(manager, Peers()) is PrepareState.LOST, "c has been asked as well"


async def test_who_does_not_answer_may_hold_it_and_is_named_while_a_task_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager = SimpleNamespace(connected=True, settling=False, live_workers=lambda: [ME, B], absent_workers=list)

    class Peers:
        async def held(self, worker: Worker, versions: list[StoreVersion]) -> list[bool]:
            raise UnavailableError("out of reach")

    assert await prepared(manager, Peers()) is PrepareState.UNAVAILABLE
    (told,) = (record for record in caplog.records if record.message == "a task waits for a version")
    assert "may have it, and cannot be asked: b (out of reach)" in vars(told)["why"]


async def prepared(manager: Any, peers: Any) -> PrepareState:
    async def damaged(*_: object) -> list[str]:
        return []

    async def anybody(group: GroupId) -> None:
        return None

    vars(manager).setdefault("may_hold", anybody)
    pins = SimpleNamespace(add=lambda *_: None, release=lambda *_: None)
    store = SimpleNamespace(catalogue=Catalogue(), pins=pins, damaged=damaged)
    replication = SimpleNamespace(store=store, me=ME, group=lambda of: None)
    preparer = Preparer(cast(Any, replication), peers, manager, Statistics(), 1.0)
    return (await preparer.prepare("session", [WANTED])).state
