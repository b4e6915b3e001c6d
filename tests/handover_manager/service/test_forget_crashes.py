"""A manager that dies at each step of forgetting a query: it deletes nothing early, and all of it in the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rhino import HandoverClient
from rhino.client.overview import Overview, fetch_overview
from rhino_core import failpoints
from rhino_core.errors import RhinoError
from tests import forked
from tests.handover_manager.cluster import FakeDriver, FakeSidecar, eventually, until
from tests.handover_manager.support.service import G0, JOB
from tests.nightly import few

pytestmark = pytest.mark.timeout(120)
MAIN = """
from handover_manager import machine
machine.SETTLE_S = 0.0
from rhino.cli.main import main
main()
"""
DAY_H, SECOND_H = "24", str(1 / 3600)
BY_THE_USER = ("forget.record.before", "forget.record.after")
AFTER_THE_GRACE = ("forget.due", "forget.delete", "forget.end")


class Scene:
    """A manager process with two sidecars. They have the state of a query that has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = "127.0.0.1:0"
        self.process: forked.Forked | None = None
        self.sidecars: list[FakeSidecar] = []

    async def start(self, grace_h: str, armed: str = "") -> None:
        options = ["--data-dir", str(self._folder), "--listen", self.address, "--bootstrap", "--lease-s", "10"]
        env = {**os.environ, failpoints.VARIABLE: armed}
        self.process = await forked.start(MAIN, "manager", *options, "--forget-grace-h", grace_h, env=env)
        self.address = json.loads(await asyncio.wait_for(self.process.stdout.readline(), 30))["address"]

    async def run_query(self) -> None:
        for name in ("w1", "w2"):
            self.sidecars.append(FakeSidecar(name, self.address))  # type: ignore[abstract]
            await self.sidecars[-1].start()
        driver = FakeDriver(self.address)
        await driver.hello()
        await driver.started(JOB, 1, name="clicks")
        await self.sidecars[0].own(G0)
        await until(lambda: driver.hosts(JOB, 0)[:1] == ["host-w1"], "w1 is desired")
        await driver.ended(JOB)
        await eventually(lambda: self.stopped(), "the query has ended")
        await driver.stop()

    async def stopped(self) -> bool:
        return not (await self.overview()).jobs[0].connected

    async def ended(self) -> int:
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), 30)

    async def overview(self) -> Overview:
        return await asyncio.to_thread(fetch_overview, self.address)

    async def forget(self) -> None:
        def call() -> None:
            with HandoverClient(self.address) as client:
                client.forget_job("clicks")

        await asyncio.to_thread(call)

    async def undo(self) -> None:
        def call() -> None:
            with HandoverClient(self.address) as client:
                client.undo_forget_job("clicks")

        await asyncio.to_thread(call)

    async def deleted(self) -> bool:
        seen = await self.overview()
        return (seen.groups, seen.jobs) == ((), ())

    async def is_there(self, *, forgotten: bool) -> None:
        seen = await self.overview()
        assert [group.group for group in seen.groups] == [G0]
        assert [job.delete_in_s is not None for job in seen.jobs] == [forgotten]

    async def close(self) -> None:
        await asyncio.gather(*[sidecar.stop() for sidecar in self.sidecars])
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "journal")
    yield made
    await made.close()


def test_no_point_is_left_out() -> None:
    points = {*BY_THE_USER, *(f"{step}.{when}" for step in AFTER_THE_GRACE for when in ("before", "after"))}
    assert points == {name for name in failpoints.NAMES if name.startswith("forget.")}


@pytest.mark.parametrize("point", BY_THE_USER)
async def test_a_crash_while_the_user_forgets(point: str, scene: Scene) -> None:
    await scene.start(DAY_H, f"{point}=kill")
    await scene.run_query()
    with pytest.raises(RhinoError):
        await scene.forget()
    assert await scene.ended() == -signal.SIGKILL
    await scene.start(DAY_H)
    await scene.is_there(forgotten=point.endswith("after"))


@pytest.mark.parametrize("point", ["forget.end.before", "forget.end.after"])
async def test_a_crash_while_the_user_takes_it_back(point: str, scene: Scene) -> None:
    await scene.start(DAY_H, f"{point}=kill")
    await scene.run_query()
    await scene.forget()
    with pytest.raises(RhinoError):
        await scene.undo()
    assert await scene.ended() == -signal.SIGKILL
    await scene.start(DAY_H)
    await scene.is_there(forgotten=point.endswith("before"))
    if point.endswith("before"):
        await scene.undo()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", few(AFTER_THE_GRACE))
async def test_a_crash_while_the_state_is_deleted(step: str, when: str, scene: Scene) -> None:
    await scene.start(SECOND_H, f"{step}.{when}=kill")
    await scene.run_query()
    await scene.forget()
    assert await scene.ended() == -signal.SIGKILL
    await scene.start(SECOND_H)
    await eventually(scene.deleted, "the state is deleted")
