"""Rebuilt state with folders, the real manager and real sidecars. What Spark computes is in tests/spark."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from query_evolution import Choices, restructure
from query_evolution.client import rebuild
from query_evolution.shadows.following import LiveBatch
from rhino.client.overview import fetch_overview
from rhino_core.errors import AlreadyThereError, PreconditionError
from rhino_core.ids import StoreId, Version
from rhino_pb import sidecar_pb2
from spark_connector.query_checkpoint import QueryCheckpoint
from tests import forked
from tests.query_evolution.structure.described import PARTITIONS, write_rebuilt, write_sketch
from tests.query_evolution.support.rebuild import REBUILT_JOB, write_state
from tests.query_evolution.support.restructure import (
    BATCHES,
    COUNT,
    NEW,
    OLD,
    RECENT,
    USERS,
    check_opens,
    made,
    run,
)
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.support.resume import statistics


async def received(cluster: Cluster) -> int:
    return sum([(await statistics(process)).replicated_bytes_in for process in cluster.sidecars.values()])


async def plan_of(address: str, folder: Path) -> str:
    """What the command says without doing anything."""
    command = ["restructure", str(folder / "q"), str(folder / "new"), "--sketch", str(folder / "rebuilt"), "--dry-run"]
    env = {**os.environ, "COLUMNS": "200"}
    done = await asyncio.to_thread(forked.run, forked.RHINO, *command, "--manager", address, env=env)
    assert done.returncode == 0
    return done.stdout


async def test_born_operators_get_the_files_of_the_rebuilt_query_and_no_bytes_travel(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (cluster, address, folder):
        rebuilt = await write_state(cluster, folder)
        before = await received(cluster)
        planned = await asyncio.to_thread(
            restructure, address, folder / "q", folder / "new", rebuilt.folder, dry_run=True
        )
        assert [(one.fate, one.old, one.new) for one in planned.operators] == [
            ("rebuilt", None, 0),
            ("moved", 0, 1),
            ("dropped", 1, None),
        ]
        assert (planned.job, planned.rebuilt_from, planned.rebuilt_stores) == ("", "batch 0", 2)
        assert not (folder / "new").exists()
        said = await plan_of(address, folder)
        assert "born, rebuilt from batch 0" in said
        assert "2 stores keep their state, 2 were rebuilt" in said
        done = await asyncio.to_thread(restructure, address, folder / "q", folder / "new", rebuilt.folder)
        assert (done.stores, done.empty_stores, done.rebuilt_stores) == (2, 0, 2)
        assert (done.rebuilt_job, done.files, done.workers) == (REBUILT_JOB, 4 * BATCHES, ("a", "b"))
        assert await received(cluster) == before
        for operator, source in ((0, StoreId(REBUILT_JOB, 0, 0, "default")), (1, StoreId("job-1", 0, 0, "default"))):
            target = StoreId(done.job, operator, 0, "default")
            name = f"3_{'r' if source.job == REBUILT_JOB else ''}0-0-2.changelog"
            for process in cluster.sidecars.values():
                root = process.settings.data_dir / "store"
                assert os.path.samefile(root / str(source) / name, root / str(target) / name)
        groups = (await asyncio.to_thread(fetch_overview, address)).groups
        owners = {
            (g.group.operator, g.group.partition): g.members[0].worker_id for g in groups if g.group.job == done.job
        }
        assert owners == {(0, 0): "b", (0, 1): "a", (1, 0): "a", (1, 1): "b"}
        await check_opens(cluster, folder / "new")


async def test_everything_is_rebuilt_if_nothing_is_kept(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path, (COUNT, RECENT)) as (cluster, address, folder):
        rebuilt = await write_state(cluster, folder, (COUNT, RECENT))
        choices = Choices(drop=frozenset({0, 1}))
        done = await asyncio.to_thread(
            restructure, address, folder / "q", folder / "new", rebuilt.folder, choices=choices
        )
        assert [one.fate for one in done.operators] == ["rebuilt", "rebuilt", "dropped", "dropped"]
        await check_opens(cluster, folder / "new")


async def test_rebuilt_state_that_nobody_stores_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (_, address, folder):
        rebuilt = write_rebuilt(folder / "rebuilt", NEW, batches=BATCHES)
        with pytest.raises(PreconditionError, match=f"no worker stores state of query {REBUILT_JOB}"):
            await asyncio.to_thread(restructure, address, folder / "q", folder / "new", rebuilt.folder)
        assert not (folder / "new").exists()
        assert len((await run(address, folder)).operators) == 3  # with a mere sketch it begins empty


async def test_a_replay_from_a_later_batch_begins_with_empty_stores_beside_the_former_ones(tmp_path: Path) -> None:
    async with asyncio.timeout(120), made(tmp_path) as (cluster, address, folder):
        live = QueryCheckpoint(folder / "q")
        batch = LiveBatch(2, (live.folder / "offsets" / "2").read_bytes(), 0.0)

        def sketched(_: object, source: Path, target: Path, *, output_mode: str) -> Path:
            assert (source, output_mode) == (live.folder, "update")
            return write_sketch(target, (USERS, *OLD))

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(rebuild, "sketch", sketched)
            begin = (address, None, live, folder / "rebuilt", batch, "update")
            await asyncio.to_thread(rebuild._begin, *begin)
            with pytest.raises(AlreadyThereError):
                await asyncio.to_thread(rebuild._begin, *begin)
        checkpoint = QueryCheckpoint(folder / "rebuilt")
        versions = checkpoint.logged().versions
        assert len(versions) == 3 * PARTITIONS
        for store, version in versions:
            async with cluster.sidecars["ab"[store.partition]].attach() as client:
                assert (await client.prepare(store, version)).state == sidecar_pb2.PREPARE_STATE_READY
                await client.commit(store, Version(3, "next"), changelog_bytes(1), [version])
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
