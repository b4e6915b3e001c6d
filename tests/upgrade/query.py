"""A streaming query against the daemons: what a driver and its executors call, over real gRPC, without Spark."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator

import grpc
import grpc.aio

from rhino_core.errors import UnavailableError
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_core.security.identity import Role
from rhino_pb import sidecar_pb2
from tests.handover_manager.cluster import FakeDriver, SessionEndedError
from tests.upgrade.deployment import WORKERS, Deployment
from tests.worker_runtime.cluster import Client, changelog_bytes, zip_bytes

NAME = "upgraded"
JOB = "2f0a3c0e-6b1e-4b52-9c0d-5d0c8a0b7e11"
PARTITIONS = 3
SNAPSHOT_EVERY = 5
KEPT = 8  # versions that Spark may still load
TASK_S = 90.0
# What Spark tries again: the daemon was just being restarted.
TRANSIENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.PERMISSION_DENIED,  # the token is of the sidecar before its restart: an executor asks for another
)
ENDED = (grpc.aio.AioRpcError, asyncio.InvalidStateError, SessionEndedError)  # the manager has been stopped
PAUSE_S = 0.05


class NotYetError(Exception):
    """A worker that may hold the version cannot be asked now."""


def store(partition: int) -> StoreId:
    return StoreId(JOB, 0, partition, "default")


def version(number: int, partition: int) -> Version:
    return Version(number, f"id{partition}-{number}")


def snapshot_before(number: int) -> int:
    """The newest version below `number` with a snapshot; 0: none."""
    return (number - 1) // SNAPSHOT_EVERY * SNAPSHOT_EVERY


def changelog(number: int, partition: int) -> bytes:
    return changelog_bytes(number * PARTITIONS + partition)


def sst(number: int, partition: int) -> str:
    return f"SSTs/{number:06d}-{partition}.sst"


def sst_bytes(number: int, partition: int) -> bytes:
    return changelog(number, partition) * 100


@functools.cache  # a zip has the time in it
def snapshot(number: int, partition: int) -> bytes:
    return zip_bytes(sst(number, partition).removeprefix("SSTs/"))


class Query:
    """Runs batch after batch. Every task loads the version before, compares its bytes, and commits the next one."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._driver: FakeDriver | None = None
        self._token = ""
        self._failure: Exception | None = None
        self.newest = 0  # every partition has acknowledged this version
        self.places = {p: WORKERS[p] for p in range(PARTITIONS)}  # where the tasks of the newest batch ran

    @property
    def oldest(self) -> int:
        """The oldest version that Spark may still load."""
        return max(self.newest - KEPT, 1)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Query]:
        """Batches run until the block ends. An error in one of them fails `reached` and the end of the block."""
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._forget_session()
        if self._failure is not None:
            raise self._failure

    async def reached(self, further: int) -> None:
        """Waits until that many further batches are done."""
        until = self.newest + further
        async with asyncio.timeout(TASK_S * 2):
            while self.newest < until:
                if self._failure is not None:
                    raise self._failure
                await asyncio.sleep(PAUSE_S)

    async def _run(self) -> None:
        try:
            while True:
                await self._batch()
                await asyncio.sleep(PAUSE_S)
        except Exception as error:  # the test raises it
            self._failure = error

    # ------------------------------------------------------------ what the driver does

    async def _batch(self) -> None:
        number = self.newest + 1
        await self._follow_the_map()
        await asyncio.gather(*(self._task(partition, number) for partition in range(PARTITIONS)))
        self.newest = number
        if self._driver is not None:
            versions = [StoreVersion(store(p), version(number, p)) for p in range(PARTITIONS)]
            floors = [StoreVersion(store(p), version(self.oldest, p)) for p in range(PARTITIONS)]
            try:
                await self._driver.report(JOB, number - 1, versions, floors=floors)
            except ENDED:
                await self._forget_session()

    async def _follow_the_map(self) -> None:
        """Tasks run where the manager's map says. Without a manager they run where they ran before."""
        if self._driver is None or self._driver.session_ended:
            await self._forget_session()
            await self._open_session()
        if self._driver is not None:
            for partition in range(PARTITIONS):
                if hosts := self._driver.hosts(JOB, partition):
                    self.places[partition] = self._deployment.worker_at(hosts[0])

    async def _open_session(self) -> None:
        opened = FakeDriver(
            self._deployment.address, former_token=self._token, transport=self._deployment.transport(Role.DRIVER)
        )
        try:
            await opened.hello()
            await opened.started(JOB, PARTITIONS, name=NAME)
        except ENDED:
            await opened.stop()
        else:
            self._driver, self._token = opened, opened.token

    async def _forget_session(self) -> None:
        if self._driver is not None:
            await self._driver.stop()
            self._driver = None

    # ------------------------------------------------------------ what a task does

    async def _task(self, partition: int, number: int) -> None:
        """Tried again, as Spark does, while the sidecar or a peer is being restarted."""
        last: Exception | None = None
        try:
            async with asyncio.timeout(TASK_S):
                while True:
                    try:
                        return await self._attempt(partition, number)
                    except (NotYetError, UnavailableError) as error:
                        last = error
                    except grpc.aio.AioRpcError as error:
                        if error.code() not in TRANSIENT:
                            raise
                        last = error
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            raise AssertionError(f"partition {partition}, version {number} at {self.places}: {last}") from last

    async def _attempt(self, partition: int, number: int) -> None:
        its, this = store(partition), version(number, partition)
        async with self._deployment.sidecars[self.places[partition]].attach(
            patient=True, commit_timeout_s=30
        ) as client:
            if number > 1:
                await load(client, partition, number - 1)
            lineage = [version(n, partition) for n in range(max(snapshot_before(number), 1), number)]
            reply = await client.commit(its, this, changelog(number, partition), lineage)
            assert reply.copies >= 1
            if number % SNAPSHOT_EVERY == 0:
                await client.add(its, sst(number, partition), sst_bytes(number, partition))
                await client.commit(its, this, snapshot(number, partition), [], end="zip")


async def load(client: Client, partition: int, number: int) -> None:
    """Prepares a version as Spark does, and checks that every file of it is as it was written."""
    its, this = store(partition), version(number, partition)
    reply = await client.prepare(its, this)
    if reply.state == sidecar_pb2.PREPARE_STATE_UNAVAILABLE:
        raise NotYetError(reply.message)
    assert reply.state == sidecar_pb2.PREPARE_STATE_READY, f"version {number} of partition {partition}: {reply}"
    base = snapshot_before(number + 1)
    if base == number and not client.path(its, f"{this}.zip").exists():
        base = snapshot_before(number)  # its changelog suffices, with what comes before it
    expected = {f"{version(n, partition)}.changelog": changelog(n, partition) for n in range(base + 1, number + 1)}
    if base:
        expected[f"{version(base, partition)}.zip"] = snapshot(base, partition)
        expected[sst(base, partition)] = sst_bytes(base, partition)
    for name, content in expected.items():
        assert client.path(its, name).read_bytes() == content, f"{name} on {client.info.worker_id}"
    await client.release(its, this)
