"""`rhino restructure` with folders, the real manager and real sidecars; Spark's part is in tests/spark."""

from __future__ import annotations

import asyncio
import json
from dataclasses import astuple
from pathlib import Path

import pytest

from query_evolution import Choices
from rhino.client.overview import fetch_overview
from rhino_core.errors import AlreadyThereError, ConflictError, PreconditionError, UnknownError
from rhino_pb import handover_pb2
from spark_connector.query_checkpoint import QueryCheckpoint
from tests import forked
from tests.query_evolution.support.restructure import COUNT, USERS, check_opens, made, run


async def test_state_moves_to_other_operators_and_what_is_born_is_empty(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (cluster, address, folder):
        done = await run(address, folder, batch=1)
        assert [astuple(one)[:4] for one in done.operators] == [
            ("born", None, 0, "dedupeWithinWatermark"),
            ("moved", 0, 1, "stateStoreSave"),
            ("dropped", 1, None, "dedupe"),
        ]
        assert (done.batch, done.stores, done.empty_stores, done.files) == (1, 2, 2, 4)
        assert QueryCheckpoint(tmp_path / "new").job == done.job != done.source_job == "job-1"
        groups = (await asyncio.to_thread(fetch_overview, address)).groups
        owners = {
            (g.group.operator, g.group.partition): g.members[0].worker_id for g in groups if g.group.job == done.job
        }
        assert owners == {(operator, partition): "ab"[partition] for operator in (0, 1) for partition in (0, 1)}
        await check_opens(cluster, tmp_path / "new")
        with pytest.raises(AlreadyThereError):
            await run(address, folder)


async def test_the_command_shows_the_plan_and_makes_the_checkpoint(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (cluster, address, folder):

        async def said(*options: str) -> tuple[int, str, str]:
            command = ("restructure", f"file:{folder / 'q'}", str(folder / "new"), "--sketch", str(folder / "sketch"))
            done = await asyncio.to_thread(forked.rhino, *command, "--manager", address, *options)
            return done.returncode, done.stdout, done.stderr

        code, out, _ = await said("--dry-run")
        assert code == 0
        assert "born, empty" in out
        assert "would restructure query job-1 after batch 2: 2 stores keep their state, 2 begin empty" in out
        assert not (folder / "new").exists()
        for wrong, text in (("1", "must be OLD=NEW"), ("0=9", "there is no new operator 9"), ("1=0", "another kind")):
            code, _, errors = await said("--pair", wrong)
            assert code not in (0, None)
            assert text in errors
        code, _, errors = await said("--pair", "0=1", "--pair", "0=0")
        assert (code != 0, "named twice" in errors) == (True, True)
        code, out, _ = await said("--json", "--pair", "0=1", "--drop", "1")
        assert code == 0
        answer = json.loads(out)
        assert [one["fate"] for one in answer["operators"]] == ["born", "moved", "dropped"]
        await check_opens(cluster, folder / "new")


async def test_nothing_stays_of_a_call_that_fails(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (_, address, folder):
        before = {g.group.job for g in (await asyncio.to_thread(fetch_overview, address)).groups}
        path = folder / "q" / "commits" / "2"
        path.write_text(path.read_text().replace("0-1-2", "never"))
        with pytest.raises(UnknownError, match="does not hold") as caught:
            await run(address, folder)
        assert {one.name for one in folder.iterdir() if "new" in one.name} == set()
        left = {g.group.job for g in (await asyncio.to_thread(fetch_overview, address)).groups}
        assert left == before or any("rhino forget" in note for note in caught.value.__notes__)


async def test_operators_that_only_a_person_can_pair(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path, (COUNT, USERS, USERS)) as (cluster, address, folder):
        with pytest.raises(PreconditionError, match="say so with --pair"):
            await run(address, folder)
        done = await run(address, folder, choices=Choices({1: 2}))
        assert [one.fate for one in done.operators] == ["same", "born", "moved"]
        await check_opens(cluster, folder / "new")


async def test_a_running_query_is_refused(tmp_path: Path) -> None:
    """Only the answer of the manager is made up: it knows a driver that runs the query."""
    running = handover_pb2.ListJobsReply(jobs=[handover_pb2.JobStatus(job="job-1", connected=True)])
    async with asyncio.timeout(120), made(tmp_path) as (_, address, folder):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("rhino.client.running.call_sync", lambda *_: running)
            with pytest.raises(ConflictError, match="Stop the query first; or branch it"):
                await run(address, folder)
