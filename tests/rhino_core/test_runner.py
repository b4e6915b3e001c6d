"""The runner of protocol cores: order, records before messages, deadlines, refusals, failures."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from rhino_core.errors import LocalProtocolError, PreconditionError, RhinoError, UnavailableError
from rhino_core.runner import LATE_S, Runner


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
        if event == "refused":
            raise PreconditionError(event)
        if event == "misdriven":
            raise LocalProtocolError(event)
        return [f"{event}1", f"{event}2"]

    def next_deadline(self) -> float | None:
        return self.due

    def check_invariants(self) -> None:
        return None


class Scene:
    def __init__(self) -> None:
        self.core = Core()
        self.done: list[str] = []
        self.written: list[list[str]] = []
        self.ticked = asyncio.Event()
        self.runner: Runner[str, str] = Runner(self.core, self, lambda: "tick")

    def persist(self, effects: Sequence[str]) -> None:
        if "full1" in effects:
            raise ValueError("full")
        self.written.append(list(effects))

    def publish(self, effect: str) -> None:
        assert effect in self.written[-1], "published before it was persisted"
        self.done.append(effect)
        if effect == "first1":
            self.runner.post("second")
        if effect == "nested1":
            self.runner.handle("second")
        if effect == "tick2":
            self.ticked.set()
        if effect == "bad1":
            raise ValueError(effect)


@contextlib.asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(scene.runner.run())
    await asyncio.sleep(0)
    yield task
    task.cancel()
    await asyncio.wait({task})


async def test_an_event_is_handled_while_it_is_posted_and_what_its_effects_post_comes_after_them() -> None:
    scene = Scene()
    async with running(scene):
        scene.runner.post("first")
        assert scene.done == ["first1", "first2", "second1", "second2"]


async def test_nothing_is_handled_before_run_nor_after_it() -> None:
    scene = Scene()
    scene.runner.post("early")
    assert scene.core.seen == []
    async with running(scene):
        assert scene.core.seen == ["early"]
    scene.runner.post("late")
    assert scene.core.seen == ["early"]


async def test_a_deadline_brings_a_tick_also_when_it_moves_forward() -> None:
    scene = Scene()
    async with running(scene):
        for due_s in (60.0, 0.02):
            scene.core.due = asyncio.get_running_loop().time() + due_s
            scene.runner.post("event")
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await scene.ticked.wait()
        assert scene.done[-2:] == ["tick1", "tick2"]


@pytest.mark.parametrize("event", ["wrong", "bad", "full", "misdriven", "refused"])
async def test_a_failure_ends_the_run_and_whoever_posted_goes_on(event: str) -> None:
    """A core must not refuse what is posted."""
    scene = Scene()
    async with running(scene) as task:
        scene.runner.post(event)
        scene.runner.post("next")
        assert "next" not in scene.core.seen
        with pytest.raises((ValueError, RhinoError), match=event):
            await task


@pytest.mark.parametrize("event", ["bad", "full"])
async def test_after_a_failure_nothing_more_is_handled_or_published(event: str) -> None:
    scene = Scene()
    async with running(scene) as task:
        with pytest.raises(ValueError, match=event):
            scene.runner.handle(event)
        done = list(scene.done)
        assert done == (["bad1"] if event == "bad" else []), "published although it was not persisted"
        with pytest.raises(UnavailableError, match="stopping"):
            scene.runner.handle("next")
        scene.runner.post("next")
        assert (scene.done, scene.core.seen) == (done, [event])
        with pytest.raises(ValueError, match=event):
            await task


@pytest.mark.parametrize("event", ["refused", "wrong", "misdriven"])
async def test_an_error_of_the_core_goes_to_the_caller_and_ends_nothing(event: str) -> None:
    scene = Scene()
    async with running(scene):
        with pytest.raises((ValueError, RhinoError), match=event):
            scene.runner.handle(event)
        assert scene.written == []
        scene.runner.handle("next")
        assert scene.done == ["next1", "next2"]


async def test_the_records_of_an_event_are_one_write_before_its_messages() -> None:
    scene = Scene()
    async with running(scene):
        scene.runner.handle("one")
        scene.runner.handle("first")
        assert scene.written == [["one1", "one2"], ["first1", "first2"], ["second1", "second2"]]


async def test_an_effect_may_post_an_event_but_not_handle_one() -> None:
    scene = Scene()
    async with running(scene) as task:
        with pytest.raises(LocalProtocolError, match="post it instead"):
            scene.runner.handle("nested")
        with pytest.raises(LocalProtocolError, match="post it instead"):
            await task


async def test_a_caller_hears_that_the_runner_does_not_run() -> None:
    scene = Scene()
    with pytest.raises(UnavailableError, match="starting or stopping"):
        scene.runner.handle("early")
    async with running(scene):
        scene.runner.handle("event")
    with pytest.raises(UnavailableError, match="starting or stopping"):
        scene.runner.handle("late")
    assert scene.core.seen == ["event"]


async def test_a_tick_that_comes_late_lets_what_came_meanwhile_go_first() -> None:
    """A busy process would otherwise count workers as lost whose heartbeats it has not read."""
    scene, loop = Scene(), asyncio.get_running_loop()
    async with running(scene):
        scene.core.due = loop.time() + 0.01
        scene.runner.post("arm")
        await asyncio.sleep(0)
        time.sleep(LATE_S + 0.1)  # noqa: ASYNC251  the process is busy
        loop.call_later(LATE_S / 10, scene.runner.post, "heartbeat")  # read a moment later
        async with asyncio.timeout(5):
            await scene.ticked.wait()
        assert scene.core.seen == ["arm", "heartbeat", "tick"]
