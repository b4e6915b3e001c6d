"""`rhino promote` with folders, the real manager and real sidecars; Spark's part is in tests/spark/test_shadow.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from query_evolution import Promoted, branch, promote
from query_evolution.shadows.report import ComparedBatch, Results
from rhino_core.errors import ConflictError, InvalidRequestError, PreconditionError
from rhino_core.ids import StoreId, Version
from rhino_pb import handover_pb2
from spark_connector.query_checkpoint import QueryCheckpoint
from tests import forked
from tests.query_evolution.structure.described import write_checkpoint, write_operators
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.support.with_manager import manager, settings_of

COUNT = "stateStoreSave: k long -> count long?"
USERS = "dedupe: user string -> "
BATCHES = 3


@contextlib.asynccontextmanager
async def made(tmp_path: Path) -> AsyncIterator[tuple[str, Path, Path]]:
    """The manager, a query with batches 0 to 2 committed and 3 planned, and a branch of it after batch 1."""
    (tmp_path / "cluster").mkdir()
    async with Cluster(tmp_path / "cluster") as cluster, manager(settings_of(tmp_path)) as address:
        cluster.address = address
        processes = await cluster.start("a", "b")
        for partition, process in enumerate(processes):
            store = StoreId("job-1", 0, partition, "default")
            async with process.attach() as client:
                for number in range(BATCHES):
                    lineage = [Version(n + 1, f"0-{partition}-{n}") for n in range(number)]
                    version = Version(number + 1, f"0-{partition}-{number}")
                    await client.commit(store, version, changelog_bytes(number), lineage)
        live = write_checkpoint(tmp_path / "q", (COUNT,), batches=BATCHES).folder
        for path in (live / "offsets").iterdir():
            path.write_text(path.read_text().replace('"offset":1', f'"offset":{path.name}0'))
        await asyncio.to_thread(branch, address, live, tmp_path / "b", batch=1)
        yield address, live, tmp_path / "b"


def follow(folder: Path, batch: int = 2) -> None:
    """As a shadow run leaves the branch. Its state is not looked at here."""
    (folder / "commits" / str(batch)).write_text((folder / "commits" / "1").read_text())


async def run(address: str, live: Path, folder: Path, state: str, target: Path | None = None) -> Promoted:
    return await asyncio.to_thread(promote, address, live, folder, state, target=target)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_branch_that_has_followed_goes_on_with_the_planned_batch(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (address, live, folder):
        follow(folder)
        Results(QueryCheckpoint(folder)).add(ComparedBatch(2, 5, 5, 1, 1, 0.1, 0.1))
        (live / "sources" / "0").mkdir(parents=True)
        (live / "sources" / "0" / "3").write_text("v1\nfile")
        before = files(live)
        done = await run(address, live, folder, "branch")
        assert (done.batch, done.planned, done.source_job, done.compared, done.different) == (2, True, "job-1", 1, 1)
        assert (done.job, done.checkpoint) == (QueryCheckpoint(folder).job, str(folder))
        assert (folder / "offsets" / "3").read_bytes() == (live / "offsets" / "3").read_bytes()
        assert (folder / "sources" / "0" / "3").read_text() == "v1\nfile"
        assert files(live) == before, "the way back"
        assert (Results(QueryCheckpoint(folder)).promoted() or {})["batch"] == 2
        again = await run(address, live, folder, "branch")
        assert replace(again, duration_s=0) == replace(done, duration_s=0), "the command may be repeated"


async def test_the_state_of_the_live_query_is_a_new_branch(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (address, live, folder):
        before = files(live), files(folder)
        command = ["promote", f"file:{live}", str(folder), "--state", "live", "--to", str(tmp_path / "next")]
        for options in (["--dry-run"], []):
            process = await asyncio.to_thread(forked.rhino, *command, "--manager", address, "--json", *options)
            done = json.loads(process.stdout)
            assert (process.returncode, done["batch"], done["planned"]) == (0, 2, True)
            assert (tmp_path / "next").exists() is not bool(options)
        target = QueryCheckpoint(tmp_path / "next")
        assert (target.job, target.newest_commit(), target.newest_offset()) == (done["job"], 2, 3)
        assert (files(live), files(folder)) == before


async def test_what_cannot_be_promoted_is_refused_with_the_way_out(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (address, live, folder):
        for state, target, text in (
            ("other", None, "must be one of live, branch"),
            ("live", None, "say where"),
            ("branch", tmp_path / "next", "the checkpoint is that of the branch"),
        ):
            with pytest.raises(InvalidRequestError, match=text):
                await run(address, live, folder, state, target)
        with pytest.raises(PreconditionError, match=r"newest batch is 1, and .* has committed 2"):
            await run(address, live, folder, "branch")
        follow(folder)
        follow(folder, 3)
        with pytest.raises(PreconditionError, match="the sink lacks the output"):
            await run(address, live, folder, "branch")
        (folder / "commits" / "3").unlink()
        (folder / "offsets" / "2").write_text("v1\n{}\nother")
        with pytest.raises(PreconditionError, match="batch 2 has other rows"):
            await run(address, live, folder, "branch")
        write_operators(tmp_path / "more", (COUNT, USERS))
        (tmp_path / "more" / "state" / "1").rename(folder / "state" / "1")
        with pytest.raises(PreconditionError, match=r"other stateful operators .*rhino restructure --sketch"):
            await run(address, live, folder, "live", tmp_path / "next")
        assert not (tmp_path / "next").exists()


async def test_a_running_query_is_refused(tmp_path: Path) -> None:
    """Only the answer of the manager is made up: it knows a driver that runs the query."""
    async with asyncio.timeout(120), made(tmp_path) as (address, live, folder):
        follow(folder)
        for job in ("job-1", QueryCheckpoint(folder).job):
            running = handover_pb2.ListJobsReply(jobs=[handover_pb2.JobStatus(job=job, connected=True)])
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("rhino.client.running.call_sync", lambda *_, running=running: running)
                with pytest.raises(ConflictError, match=f"query {job}: its driver runs it"):
                    await run(address, live, folder, "branch")
