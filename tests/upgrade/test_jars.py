"""An application keeps its jar while the daemons are upgraded, and another one's daemons go back under it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rhino_core.protocol import PROTOCOL
from tests.upgrade.deployment import WORKERS, Deployment, environment
from tests.upgrade.revisions import protocol_of
from tests.worker_runtime.cluster import ROOT

# Two builds of a jar, and two starts of Spark.
pytestmark = [pytest.mark.spark, pytest.mark.exhaustive, pytest.mark.timeout(1800)]
APP = Path(__file__).parent / "app.py"
BATCH_S = 600.0  # the first one comes after the build of the jar and the start of Spark


class App:
    """The application of `app.py`, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, log: Path) -> None:
        self._process = process
        self._folder = folder
        self._log = log

    def batches(self) -> list[list[int]]:
        """Batch id, least and greatest count of a key."""
        file = self._folder / "batches"
        written = file.read_text() if file.exists() else ""
        return [[int(word) for word in line.split()] for line in written.splitlines()]

    async def further(self, count: int) -> None:
        """Waits for that many further batches."""
        goal = len(self.batches()) + count
        async with asyncio.timeout(BATCH_S):
            while len(self.batches()) < goal:
                assert self._process.returncode is None, self._log.read_text()[-4000:]
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        (self._folder / "stop").touch()
        async with asyncio.timeout(BATCH_S):
            assert await self._process.wait() == 0, self._log.read_text()[-4000:]


@contextlib.asynccontextmanager
async def app(tree: Path, deployment: Deployment, folder: Path) -> AsyncIterator[App]:
    """Runs on the node of the first worker, with the jar of `tree`."""
    folder.mkdir(exist_ok=True)
    settings, log = deployment.sidecars[WORKERS[0]].settings, folder / "log"
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(APP), deployment.address, str(settings.socket), str(folder)),
            stdout=file,
            stderr=file,
            env=environment(tree) | {"SPARK_LOCAL_IP": settings.host},
        )
    try:
        yield App(process, folder, log)
    finally:
        if process.returncode is None:
            process.terminate()  # Spark ends with it
            await process.wait()


async def test_old_jar_with_new_daemons_and_new_jar_with_old_ones(older: Path, tmp_path: Path) -> None:
    order = ("manager", *WORKERS)
    first = tmp_path / "app"
    # A checkpoint names the class of the provider, which had another name with protocol 1.
    second = first if protocol_of(older) == PROTOCOL else tmp_path / "other"
    async with Deployment(tmp_path, older) as deployment:
        async with app(older, deployment, first) as running:
            await upgraded(deployment, running, order, ROOT)
        async with app(ROOT, deployment, second) as running:
            await upgraded(deployment, running, tuple(reversed(order)), older)


async def upgraded(deployment: Deployment, running: App, order: tuple[str, ...], tree: Path) -> None:
    """Each key comes once in a batch: its count says that no batch was lost or repeated."""
    await running.further(2)
    for name in order:
        await deployment.restart(name, tree)
        await running.further(2)
        await deployment.until_whole()
    await running.stop()
    batches = running.batches()
    assert batches == [[number, number + 1, number + 1] for number in range(len(batches))]
