"""A sidecar that dies at each of its persistent steps: real processes, kill -9 at a named point, restart, go on."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from rhino_core import failpoints
from rhino_core.errors import UnavailableError
from rhino_core.ids import Epoch, StoreId, StoreVersion, Version, parse_name
from rhino_pb import sidecar_pb2
from tests.nightly import few
from tests.worker_runtime import cluster as cluster_module
from tests.worker_runtime.checks import Acked, check_folder
from tests.worker_runtime.cluster import Client, Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.scenario import version
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.index.index import Index

KILLED = -signal.SIGKILL
READY = sidecar_pb2.PREPARE_STATE_READY
HELD_BEFORE = (sidecar_pb2.SOURCE_LOCAL, sidecar_pb2.SOURCE_REPLICA)
TRY_FOR_S = 100.0  # of a busy machine


def points(*steps: str) -> list[str]:
    return [name for name in failpoints.NAMES if name.rpartition(".")[0] in steps]


REMOVE = ("store.remove.index", "store.remove.trash", "store.remove.unlink")
BOTH = ("store.make_visible.index", "store.epoch", "store.floor")
SYNC = points("store.sync")
FLUSH = points("store.flush")
WRITER = points("store.move_in.rename", "store.take_over.index", "store.inbox.unlink", *BOTH, *REMOVE)
MEMBER = points(
    *(f"store.incoming.{step}" for step in ("create", "write", "rename", "index")),
    *BOTH,
    *REMOVE,
)
FORGET = points("store.drop_job.index", "store.drop_job.trash", "store.discard")
START = points(
    "folder.mark", "incarnation.file", "incarnation.index", "recovery.drop", "recovery.orphan", "recovery.boot_id"
)
ERRORS = {
    "a": points("store.move_in.rename"),
    "b": points("store.incoming.write", "store.incoming.rename"),
}


def test_no_point_is_left_out() -> None:
    # tests/rhino_core/test_failpoints.py; tests/handover_manager/service/test_service.py, tests/crashes;
    # tests/handover_manager/service/test_forget_crashes.py; tests/spark_connector/takeover/test_found.py
    # tests/query_evolution/modify/test_modifications.py; tests/query_evolution/client/test_new_checkpoints.py
    # tests/spark/test_supervise.py; tests/worker_runtime/archiving/test_uploading.py and test_s3.py
    # tests/worker_runtime/services/test_witness.py
    others = (
        "journal.",
        "handover.",
        "forget.",
        "takeover.",
        "branch.",
        "restructure.",
        "modification.",
        "restart.",
        "archive.",
        "store.witness.",
    )
    elsewhere = [name for name in failpoints.NAMES if name.startswith(others)]
    assert {*WRITER, *MEMBER, *SYNC, *FLUSH, *START, *FORGET, *elsewhere} == set(failpoints.NAMES)


class Scene:
    """Writer "a" and member "b", what they have acknowledged, and one store after the other."""

    def __init__(self, cluster: Cluster, *, synced: bool = False) -> None:
        self.cluster = cluster
        self.synced = synced
        self.acked: Acked = {}
        self.floors: dict[StoreId, Version] = {}

    async def insist(self, work: Callable[[Client], Awaitable[object]]) -> None:
        """Does it on the writer, again and again while the writer or the member is down."""
        async with asyncio.timeout(TRY_FOR_S):
            while True:
                try:
                    async with self.cluster.sidecars["a"].attach(synced=self.synced) as client:
                        await work(client)
                    return
                except (grpc.aio.AioRpcError, UnavailableError, AttributeError, FileNotFoundError):  # no session yet
                    await asyncio.sleep(0.05)

    async def commit(self, store: StoreId, number: int, content: bytes, lineage: list[int], end: str) -> None:
        async def once(client: Client) -> None:
            reply = await client.commit(store, version(number), content, [version(n) for n in lineage], end=end)
            assert reply.copies == 2

        await self.insist(once)
        self.acked[store, f"{version(number)}.{end}"] = content

    async def drive(self, store: StoreId) -> None:
        """Reaches every point of writer and member: changelogs, a snapshot, a commit done again, a floor."""
        sst, data = "000001-x.sst", f"data of {store}".encode()
        await self.commit(store, 1, changelog_bytes(1), [], "changelog")
        await self.commit(store, 1, changelog_bytes(1), [], "changelog")
        await self.insist(lambda client: client.add(store, f"SSTs/{sst}", data))
        await self.commit(store, 2, changelog_bytes(2), [1], "changelog")
        await self.commit(store, 2, zip_bytes(sst), [], "zip")
        await self.commit(store, 3, changelog_bytes(3), [2], "changelog")
        self.acked[store, f"SSTs/{sst}"] = data  # version 3 opens by the snapshot only, version 2 without it as well
        for number in (1, 2):
            del self.acked[store, f"{version(number)}.changelog"]
        self.floors[store] = version(3)
        self.cluster.manager.set_floors(*(StoreVersion(s, v) for s, v in self.floors.items()))

    async def die_at(self, point: str, victim: Process, store: StoreId) -> None:
        await victim.arm(f"{point}=kill")
        driving = asyncio.create_task(self.drive(store))
        try:
            async with asyncio.timeout(TRY_FOR_S):
                assert victim.process is not None
                assert await victim.process.wait() == KILLED
            await self.check_disk(victim)
            await victim.start()
            await driving
        finally:
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)
        await self.check_service(store)

    async def check_disk(self, process: Process) -> None:
        """Checks the disk of a dead sidecar, as the sidecar alone would recover it."""
        name, data = process.settings.worker_id, process.settings.data_dir
        copy = data.parent / "copy"
        shutil.copytree(data, copy)
        await asyncio.to_thread(check_folder, name, copy, dict(self.acked))
        shutil.rmtree(copy)

    async def check_service(self, store: StoreId) -> None:
        """Both hold the newest version by themselves, and show only what is whole."""
        newest = max(parse_name(n).version or Version(0, "") for s, n in self.acked if s == store)
        for process in self.cluster.sidecars.values():
            async with process.attach(patient=True) as client:
                reply = await client.prepare(store, newest)
                assert reply.state == READY
                assert reply.source in HELD_BEFORE
                for (of, name), content in self.acked.items():
                    assert client.path(of, name).read_bytes() == content
                names = await client.names(store)
                assert not [n for n in names if n.endswith(".zip")] or "SSTs/000001-x.sst" in names

    async def finish(self) -> None:
        """Both at rest: the same bytes under the same names, and no rubbish after a last start."""
        records = []
        for process in self.cluster.sidecars.values():
            await process.end()
            settings = process.settings
            records.append(await asyncio.to_thread(check_folder, settings.worker_id, settings.data_dir, self.acked))
        first, second = records
        differing = [key for key in first.keys() & second.keys() if first[key] != second[key]]
        assert not differing, "one name, two checksums"


async def chain(folder: Path, victim: str, names: list[str], *, synced: bool = False) -> None:
    """One cluster; its victim dies at one point after the other, each time with a store of its own."""
    folder.mkdir()
    async with Cluster(folder) as cluster:
        await cluster.start("a", "b")
        scene = Scene(cluster, synced=synced)
        for partition, point in enumerate(names):
            try:
                await scene.die_at(point, cluster.sidecars[victim], StoreId("job", 0, partition, "default"))
            except BaseException as error:
                error.add_note(f"at failpoint {point} of {victim}")
                raise
        await scene.finish()


@pytest.mark.nightly
async def test_writer_and_member_die_before_and_after_every_step(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number, (victim, names) in enumerate((("a", WRITER), ("b", MEMBER))):
            for half in (0, 1):
                tasks.create_task(chain(tmp_path / f"{number}{half}", victim, names[half::2]))
            tasks.create_task(chain(tmp_path / f"synced-{victim}", victim, SYNC, synced=True))


@pytest.mark.parametrize("point", few(START, 2))
async def test_a_start_that_is_cut_is_done_again(point: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(tmp_path))
        _, b = await cluster.start("a", "b")
        scene, first = Scene(cluster), StoreId("job", 0, 0, "default")
        await scene.commit(first, 1, changelog_bytes(1), [], "changelog")
        await b.end()
        folder = b.settings.data_dir / "store" / "job" / "0" / "0" / "default"
        (folder / "1_id1.changelog").write_bytes(b"torn")
        (folder / "2_orphan.changelog").write_bytes(b"never in the index")
        if point.startswith("folder"):
            shutil.rmtree(b.settings.data_dir)  # a first start
        if point.startswith("incarnation"):
            (b.settings.data_dir / "store-uuid").unlink()
        if point.startswith("recovery.boot_id"):
            (folder / "2_orphan.changelog").unlink()
        await b.start(wait=False, failpoints=f"{point}=kill")
        async with asyncio.timeout(TRY_FOR_S):
            assert b.process is not None
            assert await b.process.wait() == KILLED
        await b.start()
        cluster.manager.set_group(first.group, "a", "b", whole="a", required=1)
        await cluster.manager.until_whole(first.group)
        await scene.commit(first, 2, changelog_bytes(2), [1], "changelog")
        await scene.check_service(first)
        await scene.finish()


async def test_a_member_that_dies_while_it_forgets_a_job_forgets_it_at_its_next_start(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        _, b = await cluster.start("a", "b")
        scene, fence = Scene(cluster), Epoch(9, 9)
        for number, point in enumerate(FORGET):
            job, kept = f"job{number}", StoreId("kept", 0, number, "default")
            await b.end()
            await b.start(failpoints=f"{point}=kill")
            await scene.commit(kept, 1, changelog_bytes(number), [], "changelog")
            before = dict(scene.acked)
            for partition in (0, 1):
                store = StoreId(job, 0, partition, "default")
                await scene.commit(store, 1, changelog_bytes(1), [], "changelog")
            both, scene.acked = scene.acked, before
            cluster.manager.forget(job, fence)
            async with asyncio.timeout(TRY_FOR_S):
                assert b.process is not None
                assert await b.process.wait() == KILLED, point
            if point == "store.drop_job.index.before":
                scene.acked = both  # not forgotten: then all of it is here
            await scene.check_disk(b)
            scene.acked = before
            await b.start()
            folders = [process.settings.data_dir / "store" / job for process in cluster.sidecars.values()]
            async with asyncio.timeout(TRY_FOR_S):
                while any(folder.exists() for folder in folders):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await scene.check_service(kept)
        await scene.finish()
        index = Index(b.settings.data_dir / "index", Disk(b.settings.data_dir, 0))
        assert index.fences() == {f"job{number}": fence for number in range(len(FORGET))}
        assert {group.job for group in index.epochs()} == {"kept"}
        index.close()


@pytest.mark.parametrize("point", FLUSH)
async def test_a_member_that_dies_while_it_notes_what_is_on_disk_goes_on(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = "from worker_runtime.upkeep import flusher\nflusher.PERIOD_S = 0.1\n"
    monkeypatch.setattr(cluster_module, "MAIN", often + cluster_module.MAIN)
    async with Cluster(tmp_path) as cluster:
        _, b = await cluster.start("a", "b")
        scene, store = Scene(cluster), StoreId("job", 0, 0, "default")
        await scene.commit(store, 1, changelog_bytes(1), [], "changelog")
        await b.end()
        await b.start(wait=False, failpoints=f"{point}=kill")
        committing = asyncio.create_task(scene.commit(store, 2, changelog_bytes(2), [1], "changelog"))
        async with asyncio.timeout(TRY_FOR_S):
            assert b.process is not None
            assert await b.process.wait() == KILLED
        await scene.check_disk(b)
        await b.start()
        await committing
        await scene.check_service(store)
        await scene.finish()


@pytest.mark.parametrize("victim", ERRORS)
async def test_an_error_of_the_disk_is_told_and_the_next_attempt_succeeds(victim: str, tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.start("a", "b")
        scene, process = Scene(cluster), cluster.sidecars[victim]
        for partition, point in enumerate(ERRORS[victim]):
            await process.end()
            await process.start(failpoints=f"{point}=error")
            store = StoreId("job", 0, partition, "default")
            await scene.drive(store)
            await scene.check_service(store)
            assert f"failpoint {point}" in (process.settings.data_dir.parent / "log").read_text()
        await scene.finish()
