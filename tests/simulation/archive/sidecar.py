"""A sidecar with the real uploader, over a model of its disk and of its connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import grpc
import grpc.aio

from rhino_archive.manifest import part_of, part_to_pb
from rhino_core.errors import IntegrityError, RhinoError
from rhino_core.ids import FileEntry, GroupId, Lane, StoreId, Version, Worker
from rhino_core.rpc.convert import group_to_pb, store_version_of
from rhino_core.rpc.status import status_of
from rhino_pb import archive_pb2
from tests.simulation.archive.store import Client
from tests.simulation.archive.world import MINUTE_S, World
from worker_runtime.archiving.uploading import Order, Uploader
from worker_runtime.protocol.versions.closure import Catalogue, collectable, raise_floor
from worker_runtime.storage.keeping.retention import Pins

T = TypeVar("T")
Replies = asyncio.Queue[archive_pb2.ArchiveReply | Exception | None]


class Content:
    """Takes the place of a path. `pieces` is what `read_pieces` does."""

    def __init__(self, data: bytes | None) -> None:
        self._data = data

    def pieces(self, size_bytes: int) -> Iterator[bytes]:
        if self._data is None:
            raise IntegrityError("the file is gone")
        yield from (self._data[at : at + size_bytes] for at in range(0, len(self._data), size_bytes))


class Sidecar:
    """Its memory ends with its process, and its files stay. `pack_s`: how long a pack waits for its bandwidth."""

    def __init__(self, world: World, name: str) -> None:
        self.worker = Worker(name, f"{name}/boot", f"host-{name}", f"{name}:1")
        self.catalogue = Catalogue()
        self.contents: dict[tuple[StoreId, str], bytes] = {}
        self.pack_s = 0.0
        self.up = False
        self._world = world
        self._floors: dict[StoreId, Version] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.start()

    def start(self) -> None:
        self.up = True
        self._pins = Pins(self._world.loop.time)
        store = SimpleNamespace(
            catalogue=self.catalogue,
            pins=self._pins,
            threads=SimpleNamespace(run=self._in_thread),
            disk=SimpleNamespace(errors_of=lambda what: contextlib.nullcontext()),
            files=SimpleNamespace(path=lambda entry: Content(self.contents.get((entry.store, entry.name)))),
        )
        replication = SimpleNamespace(store=store, subscribe=lambda observe: None, drop_damaged=self._drop_damaged)
        turns = SimpleNamespace(catch_up=self._turn)
        self._uploader = Uploader(cast(Any, replication), cast(Any, turns), 0, self._world.loop.time)

    def kill(self) -> None:
        self.up = False
        for task in self._tasks:
            task.cancel()

    # ---------------------------------------------------------------- the disk

    def add(self, entry: FileEntry, data: bytes) -> None:
        self.catalogue.add(entry)
        self.contents[entry.store, entry.name] = data

    def drop(self, store: StoreId, name: str) -> None:
        self.catalogue.discard(store, name)
        self.contents.pop((store, name), None)

    def leave(self, group: GroupId) -> None:
        """Its copy is excess."""
        for store, name in [key for key in self.contents if key[0].group == group]:
            self.drop(store, name)

    def copy(self, group: GroupId, other: Sidecar) -> None:
        """All that the other one has."""
        for store, catalogue in other.catalogue.stores(group).items():
            for entry in catalogue.entries():
                self.add(entry, other.contents[store, entry.name])

    def logged(self, store: StoreId, floor: Version) -> None:
        """Retention."""
        self._floors[store] = raise_floor(self._floors.get(store), floor)
        for name in collectable(self.catalogue.store(store), self._floors[store], self._pins.of(store)):
            self.drop(store, name)

    async def _drop_damaged(self, store: StoreId, names: list[str]) -> None:
        for name in names:
            self.drop(store, name)

    async def _in_thread(self, lane: Lane, work: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return work()

    async def _turn(self) -> None:
        until = self._world.now + self.pack_s * self._world.random.uniform(0.5, 1.5)
        while self.pack_s and self._world.now < until:  # noqa: ASYNC110  time is not real
            await asyncio.sleep(10 * MINUTE_S)

    # ---------------------------------------------------------------- calls

    def serve(self, request: archive_pb2.ArchiveRequest, replies: Replies) -> asyncio.Task[None]:
        task = self._world.loop.create_task(self._archive(request, replies))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _archive(self, request: archive_pb2.ArchiveRequest, replies: Replies) -> None:
        """As `PeerService.Archive`."""
        versions = tuple(store_version_of(message) for message in request.versions)
        order = Order(request.archive, request.job, versions, tuple(map(part_of, request.basis)))
        try:
            async with contextlib.aclosing(self._uploader.run(order)) as steps:
                async for progress in steps:
                    replies.put_nowait(
                        archive_pb2.ArchiveReply(
                            part=part_to_pb(progress.part) if progress.part is not None else None,
                            refused=map(group_to_pb, progress.refused),
                        )
                    )
            replies.put_nowait(None)
        except RhinoError as error:
            replies.put_nowait(_error(status_of(error), str(error)))


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details, debug_error_string="")


class Call:
    """A call of a manager to a sidecar, over a network that breaks. `caller`: the manager."""

    def __init__(
        self, world: World, sidecar: Sidecar | None, request: archive_pb2.ArchiveRequest, caller: Client
    ) -> None:
        self._world = world
        self._sidecar = sidecar
        self._request = request
        self._caller = caller
        self._replies: Replies = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._ends_s = world.delay()
        world.loop.call_later(world.delay(), self._arrive)

    def _arrive(self) -> None:
        if self._cancelled:
            return
        if self._sidecar is None or not self._sidecar.up or self._world.chance(self._world.faults.break_call):
            self._broken()
            return
        self._task = self._sidecar.serve(self._request, self._replies)
        self._task.add_done_callback(self._ended)
        if self._world.chance(self._world.faults.break_call):
            self._world.loop.call_later(self._world.random.expovariate(1 / (10 * MINUTE_S)), self._break)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._broken()
        elif (error := task.exception()) is not None:
            self._world.fail(f"an upload ended: {error!r}")

    def _break(self) -> None:
        """The sidecar hears of it later, and goes on until then."""
        self._broken()
        self._world.loop.call_later(self._world.random.uniform(0.0, MINUTE_S), self._end)

    def _broken(self) -> None:
        self._replies.put_nowait(_error(grpc.StatusCode.UNAVAILABLE, "the connection broke"))

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def cancel(self) -> None:
        self._cancelled = True
        self._world.loop.call_later(self._ends_s, self._end)

    def __aiter__(self) -> Call:
        return self

    async def __anext__(self) -> archive_pb2.ArchiveReply:
        found = await self._replies.get()
        await self._caller.awake.wait()
        if found is None:
            raise StopAsyncIteration
        if isinstance(found, Exception):
            raise found
        return found
