"""Real sidecars and a real manager with an archive on S3, through a network that fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random

import grpc
import pytest

from rhino.cli.archive import opens
from rhino.client.handover_client import HandoverClient
from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim
from rhino_archive.manifest import part_of
from rhino_archive.reading import manifest_names
from rhino_archive.verifying import Verifier
from rhino_core.ids import StoreVersion
from tests.handover_manager.cluster import FakeDriver
from tests.nightly import few
from tests.rhino_archive.support.faulty import Answer, Fault, FaultyProxy, faulty
from tests.rhino_archive.support.stores import BUCKET, SECRETS, s3, use
from tests.worker_runtime.archiving.scene import OTHER, READY, SST, STORE, Scene, snapshot
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.support.manager_process import ManagerProcess
from tests.worker_runtime.support.with_manager import lineage, manager, settings_of, version

CONTENT = bytes(range(256)) * 4000
TOLD = Answer.of_s3(403, "AccessDenied", "".join(f"<X>{value}</X>" for value in SECRETS.values()))


def url_of(folder: Path) -> str:
    """Of the test's own: the objects outlive the server."""
    return f"s3://{BUCKET}/{folder.name}"


@pytest.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultyProxy]:
    """Processes that are started from now on find S3 behind it."""
    with s3() as address:
        async with faulty(address) as found:
            use(found.url, monkeypatch)
            yield found


@pytest.fixture
async def distant(proxy: FaultyProxy, tmp_path: Path) -> AsyncIterator[Scene]:
    url = url_of(tmp_path)
    await claim(Bucket(url), "job", "cluster")
    async with Cluster(tmp_path) as cluster:
        yield Scene(cluster, tmp_path, url=url)


def seeded(seed: int, number: int) -> list[Fault | Answer]:
    """A fifth of the requests fail."""
    answers = [Answer.of_s3(500, "InternalError"), Answer.of_s3(503, "SlowDown")]
    kinds: list[Fault | Answer] = [*answers, Fault.CUT, Fault.LOSE, Fault.HALF]
    random = Random(seed)
    return [random.choice(kinds) if random.random() < 0.2 else Fault.PASS for _ in range(number)]


async def test_state_goes_through_a_bad_network_in_both_directions(distant: Scene, proxy: FaultyProxy) -> None:
    (a,) = await distant.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await snapshot(client, content=CONTENT)
        proxy.faults.extend(seeded(1, 500))
        reply = await distant.archive(a, 4)
        proxy.faults.clear()
    await distant.publish(4, reply)
    await distant.lose_all()
    (b,) = await distant.cluster.start("b")
    async with b.attach(replicas=0) as client:
        proxy.faults.extend(seeded(2, 500))
        reply_ = await client.prepare(STORE, version(4))
        assert reply_.state == READY, reply_.message
        assert client.path(STORE, SST).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (TOLD, grpc.StatusCode.PERMISSION_DENIED),
        (Answer.of_s3(507, "XMinioStorageFull"), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["no rights", "full"],
)
async def test_a_store_that_refuses_is_told_and_commits_go_on(
    distant: Scene, proxy: FaultyProxy, rest: Answer, code: grpc.StatusCode
) -> None:
    (a,) = await distant.cluster.start("a")
    async with a.attach(replicas=0) as client:
        await client.commit(STORE, version(1), changelog_bytes(1), [])
        # The claim can be read; then packs are refused.
        proxy.faults.append(Fault.PASS)
        proxy.rest = rest
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await distant.archive(a, 1)
        assert refused.value.code() is code
        assert distant.url in (refused.value.details() or "")
        assert not [secret for secret in SECRETS.values() if secret in (refused.value.details() or "")]
        assert (await client.commit(STORE, version(2), changelog_bytes(2), lineage(2))).copies == 1
        proxy.rest = Fault.PASS
        assert (await distant.archive(a, 2)).HasField("part")


@pytest.mark.nightly  # in a folder it runs every time
async def test_a_sidecar_that_is_killed_at_each_step_of_an_upload(distant: Scene) -> None:
    """Nothing of the half uploads is in the way of the next one."""
    (a,) = await distant.cluster.start("a")
    async with a.attach(replicas=0, synced=True) as client:
        for store in (STORE, OTHER):
            await client.commit(store, version(1), changelog_bytes(1), [])
    for point in ("archive.pack.before", "archive.pack.after", "archive.part.before", "archive.part.after"):
        await a.arm(f"{point}=kill")
        with pytest.raises(grpc.RpcError):
            await distant.archive(a, 1, STORE, OTHER)
        assert a.process is not None
        assert await a.process.wait() == -signal.SIGKILL
        await a.start()
    part = part_of((await distant.archive(a, 1, STORE, OTHER)).part)
    packs = [one.name async for one in Bucket(distant.url).list("job/packs/")]
    assert len(packs) == 4, "three of them of broken uploads"
    assert part.groups == (STORE.group, OTHER.group)


@pytest.mark.parametrize("when", few(["after", "before"]))
async def test_a_manager_that_is_killed_at_its_manifest(proxy: FaultyProxy, tmp_path: Path, when: str) -> None:
    """Between the last pack and the manifest, and before it knows that the manifest is there."""
    url = url_of(tmp_path)
    bucket = Bucket(url)
    process = ManagerProcess(tmp_path, "--archive", url, "--archive-every-s", "0.2")
    try:
        async with asyncio.timeout(120), Cluster(tmp_path) as cluster:
            cluster.address = process.address
            await process.start(f"archive.manifest.{when}=kill")
            await process.ready()
            a, _ = await cluster.start("a", "b")
            versions = [StoreVersion(STORE, version(1))]
            driver = await started(process.address)
            async with a.attach(commit_timeout_s=30) as client:
                await client.commit(STORE, version(1), changelog_bytes(1), [])
                await driver.report("job", 0, versions)
                assert await process.ended() == -signal.SIGKILL
                await driver.stop()
                assert len(await manifest_names(bucket, "job")) == (0 if when == "before" else 1)
                await process.start()
                await process.ready()
                driver = await started(process.address)
                await driver.report("job", 0, versions)
                while not await whole(process.address):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                await driver.stop()
            (name,) = await manifest_names(bucket, "job")
            verifier = Verifier(bucket, "job", opens=opens)
            await verifier.verify(name)
            await verifier.verify_others()
            assert verifier.found.problems == []
    finally:
        await process.kill()


async def started(address: str) -> FakeDriver:
    driver = FakeDriver(address)
    await driver.hello()
    await driver.started("job", partitions=4, name="q", location="file:/ckpt")
    return driver


async def whole(address: str) -> bool:
    def ask() -> bool:
        with HandoverClient(address) as client:
            return any(one.whole for one in client.archive().queries)

    return await asyncio.to_thread(ask)


async def test_secrets_are_in_no_log_status_or_argument(
    proxy: FaultyProxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store's answers have them."""
    settings = replace(settings_of(tmp_path, lease_s=60.0), archive=url_of(tmp_path), archive_every_s=0.2)
    caplog.set_level("DEBUG")
    async with asyncio.timeout(90), manager(settings) as address, Cluster(tmp_path) as cluster:
        cluster.address = address
        a, b = await cluster.start("a", "b")
        driver = await started(address)
        async with a.attach(commit_timeout_s=30) as client:
            await client.commit(STORE, version(1), changelog_bytes(1), [])
            proxy.faults.extend([Fault.PASS] * 4)  # so that a sidecar is refused, too
            proxy.rest = TOLD
            await driver.report("job", 0, [StoreVersion(STORE, version(1))])
            texts = list[str]()
            while "AccessDenied" not in "".join(texts):
                with HandoverClient(address) as direct:
                    texts.append(json.dumps([str(one) for one in (await asyncio.to_thread(direct.archive)).queries]))
                await asyncio.sleep(0.05)
        await driver.stop()
        for process in (a, b):
            assert process.process is not None
            texts.append(Path(f"/proc/{process.process.pid}/cmdline").read_text())
            texts.append((process.settings.data_dir.parent / "log").read_text())
    texts.append("".join(str(record.__dict__) for record in caplog.records))
    assert "AccessDenied" in texts[-1], "the manager's log"
    found = "".join(texts)
    assert [name for name, secret in SECRETS.items() if secret in found] == []
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRETS["AWS_SECRET_ACCESS_KEY"]
