"""Drivers of protocol cores: order, deadlines, failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from rhino.driver import DirectDriver


@dataclass
class Core:
    """Answers an event with the effects `<event>1` and `<event>2`; wants a tick at `due`."""

    due: float | None = None
    seen: list[str] = field(default_factory=list)

    def handle(self, event: str, *, now: float) -> list[str]:
        self.seen.append(event)
        if event == "tick":
            assert self.due is not None
            assert now >= self.due - 0.002
            self.due = None
        if event == "wrong":
            raise ValueError(event)
        return [f"{event}1", f"{event}2"]

    def next_deadline(self) -> float | None:
        return self.due

    def check_invariants(self) -> None:
        return None


class Scene:
    def __init__(self) -> None:
        self.core = Core()
        self.done: list[str] = []
        self.ticked = asyncio.Event()
        self.driver: DirectDriver[str, str] = DirectDriver(self.core, self._execute, lambda: "tick")

    def _execute(self, effect: str) -> None:
        self.done.append(effect)
        if effect == "first1":
            self.driver.post("second")
        if effect == "tick2":
            self.ticked.set()
        if effect == "bad1":
            raise ValueError(effect)


@contextlib.asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(scene.driver.run())
    await asyncio.sleep(0)
    yield task
    task.cancel()
    await asyncio.wait({task})


async def test_an_event_is_handled_while_it_is_posted_and_what_its_effects_post_comes_after_them() -> None:
    scene = Scene()
    async with running(scene):
        scene.driver.post("first")
        assert scene.done == ["first1", "first2", "second1", "second2"]


async def test_nothing_is_handled_before_run_nor_after_it() -> None:
    scene = Scene()
    scene.driver.post("early")
    assert scene.core.seen == []
    async with running(scene):
        assert scene.core.seen == ["early"]
    scene.driver.post("late")
    assert scene.core.seen == ["early"]


async def test_a_deadline_brings_a_tick_also_when_it_moves_forward() -> None:
    scene = Scene()
    async with running(scene):
        for due_s in (60.0, 0.02):
            scene.core.due = asyncio.get_running_loop().time() + due_s
            scene.driver.post("event")
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await scene.ticked.wait()
        assert scene.done[-2:] == ["tick1", "tick2"]


@pytest.mark.parametrize("event", ["wrong", "bad"])
async def test_a_failure_ends_the_run_and_whoever_posted_goes_on(event: str) -> None:
    scene = Scene()
    async with running(scene) as task:
        scene.driver.post(event)
        scene.driver.post("next")
        assert "next" not in scene.core.seen
        with pytest.raises(ValueError, match=event):
            await task
