"""`rhino branch` and `rhino restructure` are killed at their failpoints, with the real manager and real sidecars.

Afterwards the other query is as it was, and the command can be repeated at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from query_evolution import branch, restructure
from rhino_core import failpoints
from spark_connector import operator_metadata
from spark_connector.query_checkpoint import QueryCheckpoint
from tests import forked
from tests.query_evolution.structure.described import PARTITIONS, write_versioned
from tests.query_evolution.support.rebuild import write_state
from tests.query_evolution.support.restructure import COUNT, OLD, RECENT, USERS, check_opens, made
from tests.worker_runtime.cluster import Cluster

COMMAND = """
import os
from rhino_core import failpoints
failpoints.arm(os.environ)
from rhino.cli.main import app
app()
"""
POINTS = [name for name in failpoints.NAMES if name.startswith(("branch.", "restructure."))]
SHARED = [name for name in POINTS if name.startswith("branch.")]
JOIN = {"left-keyToNumValues": "k long -> value long", "right-keyToNumValues": "k long -> value long"}


@dataclass
class Scene:
    """A stopped query "q" with an aggregation and a join of state format 3, and a sketch with one operator more."""

    cluster: Cluster
    address: str
    folder: Path
    sketch: str = "sketch"

    async def call(self, command: str, target: str, armed: str = "") -> tuple[int | None, str]:
        arguments = [command, str(self.folder / "q"), str(self.folder / target), "--manager", self.address]
        arguments += ["--sketch", str(self.folder / self.sketch)] if command == "restructure" else []
        env = {**os.environ, failpoints.VARIABLE: armed}
        done = await asyncio.to_thread(forked.run, COMMAND, *arguments, env=env)
        return done.returncode, done.stderr

    def former(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (self.folder / "q").rglob("*") if path.is_file()}

    def hidden(self, target: str) -> list[Path]:
        return [path for path in self.folder.iterdir() if path.name.startswith(f".{target}.")]


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with made(tmp_path, (RECENT, USERS, COUNT)) as (cluster, address, folder):
        for place, number in (("q", 1), ("sketch", 1)):
            for path in sorted((folder / place / "state" / str(number)).rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            write_versioned(folder / place, number, "symmetricHashJoin", JOIN)
        yield Scene(cluster, address, folder)


@asynccontextmanager
async def rebuilt_scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """The sketch has rebuilt state, of a join of state format 3, too."""
    async with made(tmp_path) as (cluster, address, folder):
        described = (RECENT, USERS, COUNT)
        rebuilt = await write_state(cluster, folder, described)
        operator = rebuilt.folder / "state" / "1"
        for path in sorted(operator.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        write_versioned(rebuilt.folder, 1, "symmetricHashJoin", JOIN)
        yield Scene(cluster, address, folder, "rebuilt")


async def crash(scene: Scene, command: str, point: str, hit: int, target: str) -> bool:
    """Kills the command at a hit of the point. Returns whether it came so far. Then everything is made good."""
    before = scene.former()
    code, errors = await scene.call(command, target, f"{point}=kill:{hit}")
    if code == 0:
        return False
    assert code == -signal.SIGKILL, errors
    assert scene.former() == before
    checkpoint = scene.folder / target
    if point == "branch.name.after":
        code, errors = await scene.call(command, target)
        assert code not in (0, None)
        assert "is there already; give a folder that does not exist" in errors
        assert scene.hidden(target) == []
    else:
        assert not checkpoint.exists()
        (left,) = scene.hidden(target)
        code, errors = await scene.call(command, target)
        assert code == 0, errors
        assert scene.hidden(target) == [left]  # whose name ends with the id that `rhino forget --job` takes
    assert scene.former() == before
    check_complete(checkpoint, scene.folder / "q")
    return True


def check_complete(checkpoint: Path, former: Path) -> None:
    texts = [path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()]
    assert not [text for text in texts if f"{former}/".encode() in text]
    found = [
        named
        for operator in (checkpoint / "state").iterdir()
        for path in operator_metadata.versions(operator).values()
        for named in operator_metadata.schema_paths(operator_metadata.read(path))
    ]
    assert found
    assert all(Path(named.removeprefix("file:")).is_file() for named in found)
    assert len(QueryCheckpoint(checkpoint).logged().versions) >= len(OLD) * PARTITIONS


@pytest.mark.parametrize(
    ("command", "point"), [("branch", "branch.name.before"), ("restructure", "branch.links.after")]
)
async def test_a_command_that_was_killed_can_be_repeated(tmp_path: Path, command: str, point: str) -> None:
    async with asyncio.timeout(120), scene(tmp_path) as there:
        assert await crash(there, command, point, 1, "new")
        await check_opens(there.cluster, there.folder / "new")


async def test_a_restructuring_with_rebuilt_state_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    """Between the links of the state that is kept and those of the rebuilt one."""
    async with asyncio.timeout(120), rebuilt_scene(tmp_path) as there:
        assert await crash(there, "restructure", "branch.links.before", 2, "new")
        await check_opens(there.cluster, there.folder / "new")


async def test_both_commands_come_to_their_points(tmp_path: Path) -> None:
    async with asyncio.timeout(120), scene(tmp_path) as there:
        q, sketch = there.folder / "q", there.folder / "sketch"
        with failpoints.recording() as reached:
            await asyncio.to_thread(branch, there.address, q, there.folder / "branch")
        assert reached & {*POINTS} == {*SHARED}
        with failpoints.recording() as reached:
            await asyncio.to_thread(restructure, there.address, q, there.folder / "new", sketch)
        assert reached & {*POINTS} == {*POINTS}


@pytest.mark.nightly  # a minute for each command; test_a_command_that_was_killed_can_be_repeated has one point
@pytest.mark.parametrize(("command", "on"), [("branch", scene), ("restructure", scene), ("restructure", rebuilt_scene)])
async def test_a_command_that_was_killed_at_any_file_can_be_repeated(
    tmp_path: Path, command: str, on: Callable[[Path], AbstractAsyncContextManager[Scene]]
) -> None:
    """At every hit of every point."""
    points = SHARED if command == "branch" else POINTS
    async with asyncio.timeout(1200), on(tmp_path) as there:
        for point in points:
            hit = 1
            while await crash(there, command, point, hit, f"new-{point}-{hit}"):
                hit += 1
            assert hit > 1, f"{command} never comes to {point}"
        await check_opens(there.cluster, there.folder / "new-branch.file.before-1")
