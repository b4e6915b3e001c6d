"""What Spark does for one query: a driver's session, executors on all workers, batches, floors, failures."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import grpc

from rhino_core.errors import RhinoError
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_pb import sidecar_pb2
from tests.handover_manager.cluster import FakeDriver
from tests.soak.daemons import Daemons
from tests.worker_runtime.cluster import Client, zip_bytes

READY = sidecar_pb2.PREPARE_STATE_READY
SNAPSHOT_EVERY, KEPT = 5, 4  # batches
SMALL_BYTES, LARGE_BYTES = (500, 20_000), 1_500_000
FAILURES = (grpc.RpcError, RhinoError, OSError, TimeoutError, RuntimeError)
T = TypeVar("T")


async def together(*works: Coroutine[Any, Any, T]) -> list[T]:
    """As gather; when one fails, the others are over as well."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def tolerating(what: str, came: Counter[str]) -> Iterator[None]:
    """Counts what fails because processes come and go. gRPC cancels whoever waits for a call that has been given up."""
    try:
        yield
    except FAILURES as error:
        came[f"{what} failed: {type(error).__name__}"] += 1
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        came[f"{what} failed: call given up"] += 1


class Executors:
    """Sessions with sidecars, one for each worker, until a call fails."""

    def __init__(self, daemons: Daemons) -> None:
        self._daemons = daemons
        self._open: dict[str, tuple[Client, contextlib.AsyncExitStack]] = {}
        self._lock = asyncio.Lock()

    async def on(self, worker: str) -> Client:
        async with self._lock:  # tasks of a batch come at the same time
            if worker not in self._open:
                stack = contextlib.AsyncExitStack()
                client = await stack.enter_async_context(self._daemons.sidecars[worker].attach(commit_timeout_s=5.0))
                self._open[worker] = client, stack
            return self._open[worker][0]

    async def close(self) -> None:
        """As executors that end."""
        for _, stack in self._open.values():
            await stack.aclose()
        self._open = {}


class Query:
    """Batches until it ends, then it is forgotten. `came`: counts what has happened."""

    def __init__(self, daemons: Daemons, job: str, partitions: int, dice: random.Random, came: Counter[str]) -> None:
        self.job, self.partitions = job, partitions
        self.driver: FakeDriver | None = None
        self._daemons = daemons
        self._dice = dice
        self._came = came
        self._executors = Executors(daemons)
        self._run_id = ""
        self._logged = [[Version(0, "")] for _ in range(partitions)]  # the newest KEPT of each store, oldest first
        self._branches: list[list[Version]] = [[] for _ in range(partitions)]  # since the newest snapshot
        self._writers = [""] * partitions
        self._done = 0
        self._named: set[str] = set()  # workers with executors, as the driver has said

    async def live(self, batches: int) -> None:
        """So many; a batch that fails ends the run, and the query is started again."""
        try:
            while self._done < batches:
                with tolerating("run", self._came):
                    await self._run()
                await asyncio.sleep(0.1)
            with tolerating("end", self._came):
                await self._start()
                await self.end()
        finally:
            await self._stop()

    async def _run(self) -> None:
        await self._start()
        try:
            for _ in range(self._dice.randint(10, 80)):
                await self._batch()
            if self._dice.random() < 0.5:
                await self.end()
                self._came["runs that ended"] += 1
            else:
                self._came["drivers that vanished"] += 1
        finally:
            await self._stop()

    async def _start(self) -> None:
        self._run_id = uuid.uuid4().hex
        self._named.clear()
        self.driver = FakeDriver(self._daemons.address)
        await self.driver.hello()
        await self.driver.started(self.job, self.partitions, run_id=self._run_id)

    async def end(self) -> None:
        assert self.driver is not None
        await self.driver.ended(self.job, self._run_id)

    async def _stop(self) -> None:
        if self.driver is not None:
            await self.driver.stop()
        self.driver = None
        await self._executors.close()

    # ------------------------------------------------------------ batches

    async def _batch(self) -> None:
        assert self.driver is not None
        number = self._logged[0][-1].version + 1
        for worker in {*self._daemons.steady()} - self._named:  # members take files of workers with executors only
            await self.driver.executor(worker, f"host-{worker}", worker)
            self._named.add(worker)
        async with asyncio.timeout(30):
            written = await together(*(self._task(p, number) for p in range(self.partitions)))
        for partition, version in enumerate(written):
            kept = self._logged[partition]
            self._branches[partition].append(version)
            self._logged[partition] = [*kept, version][-KEPT:]
        versions = [StoreVersion(self._store(p), v) for p, v in enumerate(written)]
        floors = [StoreVersion(self._store(p), kept[0]) for p, kept in enumerate(self._logged) if kept[0].version]
        await self.driver.report(self.job, number - 1, versions, self._run_id, floors)
        self._came["batches"] += 1
        self._done += 1
        if number % SNAPSHOT_EVERY == 0:
            await together(*(self._snapshot(p) for p in range(self.partitions)))

    async def _task(self, partition: int, number: int) -> Version:
        worker, store = self._place(partition), self._store(partition)
        client = await self._executors.on(worker)
        before = self._logged[partition][-1]
        if before.version and (worker != self._writers[partition] or self._dice.random() < 0.1):
            reply = await client.prepare(store, before)
            if reply.state != READY:
                raise RuntimeError(reply.message)
            self._came[f"loads: {sidecar_pb2.Source.Name(reply.source)}"] += 1
            await client.release(store, before)
        version = Version(number, uuid.uuid4().hex)
        content = self._dice.randbytes(self._dice.randint(*SMALL_BYTES))
        await client.commit(store, version, content, self._branches[partition])
        self._writers[partition] = worker
        return version

    def _place(self, partition: int) -> str:
        assert self.driver is not None
        desired = [host.removeprefix("host-") for host in self.driver.hosts(self.job, partition)]
        able = self._daemons.steady()
        return next((worker for worker in desired if worker in able), "") or self._dice.choice(able)

    async def _snapshot(self, partition: int) -> None:
        """In the background of Spark: that it fails costs nothing but a longer branch."""
        store, version = self._store(partition), self._logged[partition][-1]
        client = await self._executors.on(self._writers[partition])
        large = self._dice.random() < 0.1
        names = [f"{number:06d}-{uuid.uuid4()}.sst" for number in range(2)]
        for name in names:
            size = LARGE_BYTES if large else self._dice.randint(*SMALL_BYTES)
            await client.add(store, f"SSTs/{name}", self._dice.randbytes(size))
        await client.commit(store, version, zip_bytes(*names), [], end="zip")
        self._branches[partition] = [version]
        self._came["snapshots"] += 1
        if self._dice.random() < 0.05:
            client.put(b"made, and never handed over")

    def _store(self, partition: int) -> StoreId:
        return StoreId(self.job, 0, partition, "default")
