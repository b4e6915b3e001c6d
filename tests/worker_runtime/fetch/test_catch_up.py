"""A member that is whole leaves to the chain what comes by itself, and pulls the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rhino_core.errors import UnavailableError
from rhino_core.ids import Epoch, FileEntry, GroupId, ReplicaGroup, Worker
from tests.worker_runtime.scenario import STORE, group, sst, worker
from worker_runtime import precedence
from worker_runtime.fetch import catch_up
from worker_runtime.fetch.catch_up import Puller
from worker_runtime.precedence import Turns
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies.pulling import Found, Inventory
from worker_runtime.protocol.versions.closure import Catalogue

FILES = tuple(sst(number) for number in range(4))
MEMBERS = (worker("a"),)


class Scene:
    """Member b, which lacks all files that a has; `comes` is what the chain brings while b waits, one at a time."""

    def __init__(self, comes: list[FileEntry]) -> None:
        self.catalogue = Catalogue()
        self.comes = comes
        self.pulled: list[FileEntry] = []
        self.collected: list[FileEntry] = []  # retention deletes them once, right after they have come
        self.silent: set[str] = set()
        self.finished, self.all_pulled = asyncio.Event(), asyncio.Event()
        self.me = worker("b")
        self.loading = False
        self.turns = Turns(lambda: self.loading)
        self.store = SimpleNamespace(
            catalogue=self.catalogue,
            retention=SimpleNamespace(floor=lambda store: None),
            files=SimpleNamespace(twins=lambda entry: []),
        )

    def group(self, of: GroupId) -> ReplicaGroup:
        return group(1, "ab")

    def post(self, event: ev.Event) -> None:
        self.finished.set()

    async def inventory(self, member: Worker, of: GroupId) -> Inventory:
        if member.worker_id in self.silent:
            raise UnavailableError(f"{member.worker_id} does not answer")
        return Inventory(worker("a"), FILES, Epoch(1, 1))

    async def pull(self, found: Found) -> int:
        self.pulled.append(found.entry)
        if len(self.pulled) == len(FILES):
            self.all_pulled.set()
        self.catalogue.add(found.entry)
        if found.entry in self.collected:
            self.collected.remove(found.entry)
            self.catalogue.discard(found.entry.store, found.entry.name)
        return found.entry.size_bytes

    async def sleep(self, pause_s: float) -> None:
        if self.comes:
            self.catalogue.add(self.comes.pop(0))

    async def run(self, *, whole: bool, members: tuple[Worker, ...] = MEMBERS) -> list[FileEntry]:
        async with asyncio.TaskGroup() as tasks:
            puller = Puller(cast("Any", self), cast("Any", self), 2, 0, tasks)
            puller.start(ev.StartCatchUp(STORE.group, Epoch(1, 1), members, whole))
            await self.finished.wait()
        return self.pulled


@pytest.mark.parametrize(("coming", "pulled"), [(4, 0), (2, 2), (0, 4)])
async def test_only_what_does_not_come_is_pulled(coming: int, pulled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(list(FILES[:coming]))
    monkeypatch.setattr(catch_up, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": scene.sleep}))
    assert await scene.run(whole=True) == list(FILES[4 - pulled :])


async def test_who_is_not_whole_pulls_at_once() -> None:
    assert await Scene([]).run(whole=False) == list(FILES)


async def test_a_file_that_retention_deleted_too_early_is_pulled_again() -> None:
    """Seed 757, factor 1: no version here needed the old snapshot until the changelogs of another lineage had come."""
    scene = Scene([])
    scene.collected = [FILES[1]]
    assert await scene.run(whole=False) == [*FILES, FILES[1]]


async def test_no_file_is_begun_while_a_prepare_fetches() -> None:
    scene = Scene([])
    with scene.turns.prepare():
        running = asyncio.ensure_future(scene.run(whole=False))
        with scene.turns.prepare():
            for _ in range(20):
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert scene.pulled == []
    assert await running == list(FILES)


async def test_no_file_is_begun_while_a_task_loads_state() -> None:
    scene = Scene([])
    scene.loading = True
    running = asyncio.ensure_future(scene.run(whole=False))
    await asyncio.sleep(3 * precedence.LOOK_S)
    assert scene.pulled == []
    scene.loading = False
    assert Counter(await running) == Counter(FILES), "two at a time wait, and go on in any order"


async def test_a_catch_up_goes_on_though_loads_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precedence, "PATIENCE_S", 0.01)
    scene = Scene([])
    scene.loading = True
    assert await scene.run(whole=False) == list(FILES)


async def test_a_member_that_does_not_answer_delays_the_end_but_not_the_files_of_the_others() -> None:
    scene = Scene([])
    scene.silent = {"c"}
    running = asyncio.ensure_future(scene.run(whole=False, members=(worker("a"), worker("c"))))
    async with asyncio.timeout(5):
        await scene.all_pulled.wait()
    assert not scene.finished.is_set(), "c may have a file that nobody else has"
    scene.silent.clear()
    async with asyncio.timeout(5):
        assert await running == list(FILES)
