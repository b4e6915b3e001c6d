"""`rhino forget` with the real manager and real sidecars: files go everywhere, also where they come back later."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
from pathlib import Path

import grpc
import pytest

from rhino import HandoverClient
from rhino.client.overview import fetch_overview
from rhino.client.query_record import ForgottenJob, forget_worker
from rhino_core.errors import PreconditionError, UnknownError
from rhino_core.ids import Epoch, StoreId, Version
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import epoch_of, group_to_pb
from rhino_pb import handover_pb2, handover_pb2_grpc, peer_pb2, peer_pb2_grpc, sidecar_pb2
from tests.soak import gauge
from tests.worker_runtime.cluster import Cluster, Process, changelog_bytes, zip_bytes
from tests.worker_runtime.support.scrub import rhino
from tests.worker_runtime.support.with_manager import STORE, group_of, lineage, manager, settings_of, version

OTHER = StoreId("other", 0, 0, "default")
PLACES_OF_JOBS = (
    "ManagerClient._reported",
    "ManagerClient._settings",
    "JobDurability._known",
    "NewestVersions._written",
    "NewestVersions._held",
)


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers have had their time to report."""
    monkeypatch.setattr("handover_manager.machine.SETTLE_S", 0.0)


def forget_job(address: str, job: str, *, dry_run: bool) -> ForgottenJob:
    """At once, without a grace."""
    with HandoverClient(address) as client:
        return client.forget_job(job, now=True, dry_run=dry_run)


async def write(process: Process) -> None:
    async with process.attach() as client:
        await client.add(STORE, "SSTs/000001-x.sst", changelog_bytes(9, 500_000))
        await client.commit(STORE, version(1), zip_bytes("000001-x.sst"), [], end="zip")
        await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))
        await client.commit(OTHER, version(1), changelog_bytes(1), [])


async def until_empty(process: Process, job: str) -> None:
    folder = process.settings.data_dir / "store" / job
    async with asyncio.timeout(20):
        while folder.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def usage_is_known(address: str, workers: int, files: int) -> None:
    """Heartbeats have reported what is stored."""
    async with asyncio.timeout(20):
        while True:
            with_files = (await asyncio.to_thread(forget_job, address, "job", dry_run=True)).workers
            if [usage.files for usage in with_files] == [files] * workers:
                return
            await asyncio.sleep(0.05)


async def test_a_forgotten_job_goes_everywhere_and_nothing_else_does(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(120), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, b = await cluster.start("a", "b")
        await write(a)
        await group_of(address, "a", "b")
        await usage_is_known(address, 2, 3)
        code, out, _ = await rhino("forget", "--job", "job", "--dry-run", "--json", "--manager", address)
        plan = json.loads(out)
        assert (code, plan["dry_run"], plan["groups"]) == (0, True, 1)
        assert [(w["worker_id"], w["live"], w["files"]) for w in plan["workers"]] == [("a", True, 3), ("b", True, 3)]
        assert all(w["bytes"] > 500_000 for w in plan["workers"])
        assert (a.settings.data_dir / "store" / "job").exists(), "a dry run changes nothing"

        assert (await rhino("forget", "--job", "job", "--now", "--yes", "--manager", address))[0] == 0
        for process in (a, b):
            await until_empty(process, "job")
            async with process.attach() as client:
                assert await client.names(STORE) == []
                assert await client.names(OTHER) == ["1_id1.changelog"]
        groups = (await asyncio.to_thread(fetch_overview, address)).groups
        assert [group.group.job for group in groups] == ["other"]
        async with a.attach() as client:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.commit(STORE, version(3), b"3", lineage(3))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "forgotten" in str(refused.value.details())
            with pytest.raises(grpc.aio.AioRpcError, match="forgotten"):  # as when the query is started again
                await client.prepare(STORE, version(2))
            assert (await client.commit(OTHER, version(2), b"2", lineage(2))).copies == 2
        await a.end(signal.SIGKILL)
        await a.start()
        async with a.attach() as client:
            with pytest.raises(grpc.aio.AioRpcError, match="forgotten"):
                await client.commit(STORE, version(3), b"3", lineage(3))


async def test_a_query_that_is_taken_back_goes_on_with_its_state(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        async with manager(settings_of(tmp_path)) as address:
            cluster.address = address
            a, b = await cluster.start("a", "b")
            await write(a)
            await group_of(address, "a", "b")
            assert (await rhino("forget", "--job", "job", "--yes", "--manager", address))[0] == 0
        async with manager(settings_of(tmp_path, address, bootstrap=False)):
            await group_of(address, "a", "b")
            code, out, _ = await rhino("forget", "--job", "job", "--undo", "--manager", address, "--json")
            assert (code, json.loads(out)) == (0, {"job": "job", "undone": True})
            async with b.attach() as client:
                assert (await client.prepare(STORE, version(2))).source == sidecar_pb2.SOURCE_REPLICA
                assert (await client.commit(STORE, version(3), b"3", lineage(3))).copies == 2


@pytest.mark.nightly
async def test_the_files_go_after_the_grace(cluster: Cluster, tmp_path: Path) -> None:
    settings = dataclasses.replace(settings_of(tmp_path), forget_grace_s=2.0)
    async with asyncio.timeout(120), manager(settings) as address:
        cluster.address = address
        a, b = await cluster.start("a", "b")
        await write(a)
        await group_of(address, "a", "b")
        began = asyncio.get_running_loop().time()
        code, out, _ = await rhino("forget", "--job", "job", "--yes", "--manager", address, "--json")
        assert (code, json.loads(out)["left_s"]) == (0, 2.0)
        while (a.settings.data_dir / "store" / "job").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert asyncio.get_running_loop().time() - began > 2.0
        await until_empty(b, "job")
        assert (await rhino("forget", "--job", "job", "--undo", "--manager", address))[0] == 3


async def test_a_forgotten_worker_brings_its_state_back_when_its_sidecar_starts(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with asyncio.timeout(120), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, b = await cluster.start("a", "b")
        async with a.attach(replicas=0) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
        await a.end(signal.SIGKILL)
        await until_states(address, "lost", "live")
        await asyncio.to_thread(forget_worker, address, "a", dry_run=False)
        await until_states(address, "live")
        await a.start()
        await until_states(address, "live", "live")
        async with b.attach(replicas=0) as client:
            reply = await client.prepare(STORE, version(1))
            assert (reply.state, reply.source) == (sidecar_pb2.PREPARE_STATE_READY, sidecar_pb2.SOURCE_REMOTE)


async def until_states(address: str, *states: str) -> None:
    """Waits until the workers have these states, in the order of their names."""
    async with asyncio.timeout(20):
        while True:
            workers = sorted((await asyncio.to_thread(fetch_overview, address)).workers, key=lambda w: w.worker_id)
            if [worker.state for worker in workers] == list(states):
                return
            await asyncio.sleep(0.05)


async def test_sidecars_remember_nothing_of_forgotten_jobs_but_their_fences(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(120), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, b = cluster.make("a"), cluster.make("b")
        for process in (a, b):
            process.environment[gauge.SOCKET] = str(tmp_path / f"{process.settings.worker_id}.gauge")
            await process.start()

        async def commit_and_forget(job: str) -> None:
            async with a.attach() as client:
                await client.commit(STORE._replace(job=job), version(1), changelog_bytes(1), [])
            await asyncio.to_thread(forget_job, address, job, dry_run=False)
            for process in (a, b):
                await until_empty(process, job)

        async def remembered() -> dict[str, float]:
            """By job or group."""
            found: dict[str, float] = {}
            for name in "ab":
                sizes = await gauge.ask(tmp_path / f"{name}.gauge")
                found |= {f"{name} {place}": sizes.get(f"size of {place}", 0) for place in PLACES_OF_JOBS}
            return found

        for number in range(5):
            await commit_and_forget(f"job{number}")
        assert (await gauge.ask(tmp_path / "b.gauge"))["size of Groups._fences"] == 5
        while any((await remembered()).values()):  # noqa: ASYNC110  heartbeats remove the rest
            await asyncio.sleep(0.1)


async def test_a_worker_that_was_away_deletes_when_it_comes_back_and_knows_the_fence(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with asyncio.timeout(120):
        async with manager(settings_of(tmp_path)) as address:
            cluster.address = address
            a, b = await cluster.start("a", "b")
            await write(a)
            await group_of(address, "a", "b")
            await b.end(signal.SIGKILL)
            await asyncio.to_thread(forget_job, address, "job", dry_run=False)
            await until_empty(a, "job")
            assert (b.settings.data_dir / "store" / "job").exists()
        async with manager(settings_of(tmp_path, address, bootstrap=False)):
            await b.start()
            await until_empty(b, "job")
            assert (b.settings.data_dir / "store" / "other").exists()
            assert b.worker is not None
            async with aio_channel(b.worker.peer_address) as channel:
                request = peer_pb2.InventoryRequest(group=group_to_pb(STORE.group))
                inventory = await peer_pb2_grpc.PeerStub(channel).Inventory(request, timeout=5)
            assert not inventory.files
            assert epoch_of(inventory.epoch) > Epoch(1, 1), "whoever writes under an old epoch is refused"


async def test_a_running_job_is_not_forgotten_until_its_driver_says_that_it_has_ended(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(60), manager(settings_of(tmp_path)) as address, aio_channel(address) as channel:
        cluster.address = address
        a, _ = await cluster.start("a", "b")
        await write(a)
        session = handover_pb2_grpc.HandoverManagerStub(channel).DriverSession(timeout=60)  # type: ignore[call-arg]
        await session.write(handover_pb2.DriverEvent(hello=handover_pb2.DriverHello(application_id="app-7")))
        await session.read()
        started = handover_pb2.QueryStarted(job="job", run_id="run", name="clicks")
        await session.write(handover_pb2.DriverEvent(query_started=started))
        for name in ("clicks", "job"):
            async with asyncio.timeout(10):
                while True:
                    code, _, err = await rhino("forget", "--job", name, "--manager", address, "--dry-run")
                    if code == 3:
                        break
            assert "app-7" in err
        monkeypatch.setattr("handover_manager.machine.SETTLE_S", 3600.0)
        session.cancel()
        async with asyncio.timeout(10):
            while True:
                with pytest.raises(PreconditionError) as refused:
                    await asyncio.to_thread(forget_job, address, "clicks", dry_run=False)
                if "may come back" in str(refused.value):
                    break
        again = handover_pb2_grpc.HandoverManagerStub(channel).DriverSession(timeout=60)  # type: ignore[call-arg]
        await again.write(handover_pb2.DriverEvent(hello=handover_pb2.DriverHello(application_id="app-7")))
        await again.read()
        await again.write(handover_pb2.DriverEvent(query_started=started))
        await again.write(handover_pb2.DriverEvent(query_ended=handover_pb2.QueryEnded(job="job", run_id="run")))
        async with asyncio.timeout(10):
            while True:
                try:
                    done = await asyncio.to_thread(forget_job, address, "clicks", dry_run=False)
                    break
                except PreconditionError:
                    await asyncio.sleep(0.05)
        assert done.job == "job"
        await until_empty(a, "job")
        with pytest.raises(UnknownError):
            await asyncio.to_thread(forget_job, address, "nobody", dry_run=True)


@pytest.mark.nightly
async def test_prepare_no_longer_waits_for_a_forgotten_worker(cluster: Cluster, tmp_path: Path) -> None:
    async with asyncio.timeout(120), manager(settings_of(tmp_path)) as address:
        cluster.address = address
        a, b = await cluster.start("a", "b")
        async with a.attach(replicas=0) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
        code, _, err = await rhino("forget", "--worker", "a", "--manager", address)
        assert code == 3, err
        assert "live" in err
        await a.end(signal.SIGKILL)
        async with b.attach(replicas=0) as client:
            async with asyncio.timeout(20):
                states: list[str] = []
                while states != ["lost", "live"]:
                    states = [w.state for w in (await asyncio.to_thread(fetch_overview, address)).workers]
                    await asyncio.sleep(0.05)
            waiting = await client.prepare(STORE, version(1))
            assert (waiting.state, "cannot be asked: a" in waiting.message) == (
                sidecar_pb2.PREPARE_STATE_UNAVAILABLE,
                True,
            )
            plan = await asyncio.to_thread(forget_worker, address, "a", dry_run=True)
            assert plan.only_member == (STORE.group,)
            code, out, _ = await rhino("forget", "--worker", "a", "--yes", "--manager", address, "--json")
            assert (code, json.loads(out)["groups"]) == (0, 1)
            async with asyncio.timeout(20):
                while (await client.prepare(STORE, version(1))).state != sidecar_pb2.PREPARE_STATE_LOST:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert (await client.commit(STORE, Version(1, "anew"), b"1", [])).copies == 1
        workers = (await asyncio.to_thread(fetch_overview, address)).workers
        assert [worker.worker_id for worker in workers] == ["b"]
        assert (await rhino("forget", "--manager", address))[0] == 2
