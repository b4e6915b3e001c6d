"""Whoever asks for scrubs at full pace again and again: one at a time, with rests, behind commits and loads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from crc32c import crc32c

from rhino.cli import scrub as command
from rhino.client.scrub import NO_SCRUB
from rhino_core.ids import FileEntry
from tests.worker_runtime.scenario import STORE
from worker_runtime.precedence import Precedence
from worker_runtime.storage.store import Store
from worker_runtime.upkeep import scrubber
from worker_runtime.upkeep.scrubber import Scrubber

PIECE_S = 0.05
CONTENT = bytes(3 * scrubber.PIECE_BYTES + 1)
NAME = "SSTs/000001-x.sst"


class Watched(Precedence):
    """Records when it let a piece go on. The thread that reads the piece may begin later on a busy machine."""

    def __init__(self, loading: Callable[[], bool]) -> None:
        super().__init__(loading)
        self.went_at: list[float] = []

    async def yield_to_commits(self, sent_at: float) -> float:
        self.went_at.append(await super().yield_to_commits(sent_at))
        return self.went_at[-1]


class Scene:
    """A scrubber over one file, each piece of which takes a while; when each was read."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loading = False
        self.read_at: list[float] = []
        self.precedence = Watched(lambda: self.loading)
        replication = SimpleNamespace(store=store, precedence=self.precedence)
        self.scrubber = Scrubber(replication, 0.0, 0)  # type: ignore[arg-type]
        piece = scrubber._piece

        def slow(pieces: Iterator[bytes], crc: int) -> tuple[int, int]:
            self.read_at.append(time.monotonic())
            time.sleep(PIECE_S)
            return piece(pieces, crc)

        monkeypatch.setattr(scrubber, "_piece", slow)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def ended(self, number: int) -> None:
        await self.until(lambda: self.scrubber.status().number == number and not self.scrubber.status().running)


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    store = Store.open("me", tmp_path, 0)
    entry = FileEntry(STORE, NAME, len(CONTENT), crc32c(CONTENT), written_by="a")
    await store.received.receive_whole(entry, [CONTENT])
    made = Scene(store, monkeypatch)
    running = asyncio.create_task(made.scrubber.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    store.close()


async def test_who_asks_meanwhile_joins_and_the_next_one_rests_first(scene: Scene) -> None:
    assert [scene.scrubber.start_now().number for _ in range(5)] == [1] * 5
    await scene.until(lambda: len(scene.read_at) > 1)
    assert scene.scrubber.start_now().number == 1
    await scene.ended(1)
    first = list(scene.read_at)
    numbers = [scene.scrubber.start_now().number for _ in range(5)]
    assert (numbers, scene.scrubber.status().running) == ([2] * 5, True)
    await scene.ended(2)
    took_s = first[-1] - first[0]
    assert scene.read_at[len(first)] - first[-1] >= took_s, "it did not rest as long as the one before has read"
    assert len(scene.read_at) == 2 * len(first)


async def test_it_goes_at_a_trickle_while_a_task_loads(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker_runtime.precedence.TRICKLE_S", 3 * PIECE_S)
    scene.loading = True
    scene.scrubber.start_now()
    await scene.ended(1)
    went_at = scene.precedence.went_at
    assert len(went_at) == len(scene.read_at) == 5
    assert min(later - earlier for earlier, later in pairwise(went_at)) >= 3 * PIECE_S
    assert scene.scrubber.status().errors == 0


def test_the_command_says_that_one_runs_already(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = [SimpleNamespace(worker_id=name, state="live", peer_address="h:1") for name in ("w1", "w2")]
    running = replace(NO_SCRUB, number=7, running=True, full_pace=True, total_bytes=2_000_000)
    joined = {"w1": replace(running, checked_bytes=1_000_000), "w2": running}
    monkeypatch.setattr(command, "fetch_overview", lambda manager: SimpleNamespace(workers=workers))
    monkeypatch.setattr(command, "start_scrub", lambda worker, address: joined[worker])
    assert command.run_scrub("h:1", [], wait=False, repair_wait_s=0.0, as_json=True) == 0
    assert capsys.readouterr().err == "worker w1: scrub 7 is running already and has checked 1.0 MB of 2.0 MB\n"
