"""`rhino branch` with a folder, the real manager and real sidecars; Spark's part is in tests/spark/test_branch.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from query_evolution import Branch, branch
from rhino.client.overview import fetch_overview
from rhino_core.errors import PreconditionError, UnknownError
from rhino_core.ids import StoreId, Version
from rhino_pb import sidecar_pb2
from spark_connector.query_checkpoint import QueryCheckpoint
from tests import forked
from tests.spark_connector.support.checkpoint import make
from tests.worker_runtime.cluster import Client, Cluster, changelog_bytes
from tests.worker_runtime.support.with_manager import manager, settings_of

STORES = [StoreId("job-1", 0, partition, "default") for partition in (0, 1)]
IDS = {"0": [["a"], ["b"]]}
BATCHES = 3


@contextlib.asynccontextmanager
async def made(tmp_path: Path) -> AsyncIterator[tuple[Cluster, str, Path]]:
    """Two workers. The first owns the first partition, the second the other one."""
    (tmp_path / "cluster").mkdir()
    async with Cluster(tmp_path / "cluster") as cluster, manager(settings_of(tmp_path)) as address:
        cluster.address = address
        processes = await cluster.start("a", "b")
        for process, store, checkpoint_id in zip(processes, STORES, "ab", strict=True):
            async with process.attach() as client:
                await write(client, store, checkpoint_id)
        make(tmp_path / "q", IDS, batches=BATCHES)
        yield cluster, address, tmp_path / "q"


async def write(client: Client, store: StoreId, checkpoint_id: str) -> None:
    for number in range(1, BATCHES + 1):
        lineage = [Version(before, checkpoint_id) for before in range(1, number)]
        await client.commit(store, Version(number, checkpoint_id), changelog_bytes(number), lineage)


async def run(address: str, source: Path, target: Path, batch: int | None = None) -> Branch:
    return await asyncio.to_thread(branch, address, source, target, batch=batch)


async def check_opens(cluster: Cluster, job: str, number: int = BATCHES) -> None:
    for name, store, checkpoint_id in zip("ab", STORES, "ab", strict=True):
        process = cluster.sidecars[name]
        if process.process is None or process.process.returncode is not None:
            continue
        async with process.attach() as client:
            reply = await client.prepare(store._replace(job=job), Version(number, checkpoint_id))
            assert reply.state == sidecar_pb2.PREPARE_STATE_READY, reply.message


async def test_a_branch_has_the_state_of_its_batch_and_the_same_owners(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (cluster, address, source):
        done = await run(address, source, tmp_path / "b")
        assert (done.batch, done.stores, done.files, done.workers) == (2, 2, 6, ("a", "b"))
        assert QueryCheckpoint(tmp_path / "b").job == done.job != done.source_job == "job-1"
        await check_opens(cluster, done.job)
        groups = (await asyncio.to_thread(fetch_overview, address)).groups
        owners = {(g.group.job, g.group.partition): g.members[0].worker_id for g in groups}
        assert owners == {(job, p): "ab"[p] for job in ("job-1", done.job) for p in (0, 1)}
        older = await run(address, source, tmp_path / "c", 1)
        assert older.batch == 1
        await check_opens(cluster, older.job, 2)


async def test_the_command_says_what_it_made_and_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (cluster, address, source):

        async def said(*options: str) -> dict[str, Any]:
            command = ("branch", f"file:{source}", str(tmp_path / "b"), "--manager", address, "--json")
            done = await asyncio.to_thread(forked.rhino, *command, *options)
            return {"exit": done.returncode, **json.loads(done.stdout or "{}")}

        would = await said("--dry-run")
        assert (would["exit"], would["dry_run"], would["stores"], would["job"]) == (0, True, 2, "")
        assert not (tmp_path / "b").exists()
        done = await said()
        assert (done["exit"], done["batch"], done["source_job"]) == (0, 2, "job-1")
        await check_opens(cluster, done["job"])
        assert await said() == {"exit": 3}, "the folder is there now"


async def test_another_holder_is_asked_where_the_owner_does_not_answer(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (cluster, address, source):
        await cluster.sidecars["b"].end(signal.SIGKILL)
        done = await run(address, source, tmp_path / "b")
        assert done.workers == ("a",)
        await check_opens(cluster, done.job)


async def test_nothing_stays_of_a_branch_that_fails(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (_, address, source):
        before = await asyncio.to_thread(fetch_overview, address)
        text = (source / "commits" / "2").read_text()
        (source / "commits" / "2").write_text(text.replace('"b"', '"never"'))
        with pytest.raises(UnknownError, match="does not hold") as caught:
            await run(address, source, tmp_path / "b")
        assert not (tmp_path / "b").exists()
        left = {g.group.job for g in (await asyncio.to_thread(fetch_overview, address)).groups}
        assert left == {g.group.job for g in before.groups} or any("rhino forget" in n for n in caught.value.__notes__)


async def test_a_query_without_rhino_is_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(60), manager(settings_of(tmp_path)) as address:
        make(tmp_path / "q", IDS)
        with pytest.raises(PreconditionError, match="does not run with Rhino"):
            await run(address, tmp_path / "q", tmp_path / "b")
        assert {path.name for path in tmp_path.iterdir()} >= {"q"}
        assert not (tmp_path / "b").exists()
