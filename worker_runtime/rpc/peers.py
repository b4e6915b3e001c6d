"""Asking and fetching from other sidecars: inventories, version checks, files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc.aio

from rhino.errors import IntegrityError, NoSpaceError, RemoteProtocolError, RhinoError, UnavailableError
from rhino.ids import Epoch, FileEntry, GroupId, StoreVersion, Worker
from rhino.rpc.channel import aio_channel, call
from rhino.rpc.convert import epoch_of, file_of, group_to_pb, store_to_pb, store_version_to_pb, worker_of
from rhino.rpc.status import error_of
from rhino_pb import peer_pb2, peer_pb2_grpc
from worker_runtime.core import events as ev
from worker_runtime.fetching import Turns
from worker_runtime.figures import Figures
from worker_runtime.replication import Replication
from worker_runtime.storage.files import Incoming
from worker_runtime.storage.locks import KeyedLocks

log = logging.getLogger(__name__)
ASK_TIMEOUT_S = 3.0
CHUNK_TIMEOUT_S = 15.0  # without a further chunk a fetch is given up
FETCH_TIMEOUT_S = 24 * 3600.0  # a deadline for every call; progress is watched per chunk


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a worker stores of a group, and the highest epoch of it that it has seen. `worker` as it says itself."""

    worker: Worker
    files: tuple[FileEntry, ...]
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Found:
    """A file and workers that have it."""

    entry: FileEntry
    holders: tuple[Worker, ...]


class Peers:
    """Calls to other sidecars, on connections apart from those of pushes. `current` gives a worker as it lives now."""

    def __init__(self, replication: Replication, figures: Figures, current: Callable[[Worker], Worker]) -> None:
        self._current = current
        self._replication = replication
        self._figures = figures
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._pulling = KeyedLocks()
        self.turns = Turns(lambda: replication.store.pins.loading)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close(None)

    async def inventory(self, worker: Worker, group: GroupId) -> Inventory:
        """Raises UnavailableError and other RhinoErrors."""
        request = peer_pb2.InventoryRequest(group=group_to_pb(group))
        stub = self._stub(worker)
        reply = await call(
            f"inventory of {group} from {worker.worker_id}",
            lambda: stub.Inventory(request, timeout=ASK_TIMEOUT_S),
        )
        if reply.worker.worker_id != worker.worker_id:
            raise UnavailableError(f"{worker.peer_address} is {reply.worker.worker_id}, not {worker.worker_id}")
        return Inventory(worker_of(reply.worker), tuple(file_of(file) for file in reply.files), epoch_of(reply.epoch))

    async def held(self, worker: Worker, versions: list[StoreVersion]) -> list[bool]:
        """Which of the versions the worker holds whole. Raises UnavailableError and other RhinoErrors."""
        request = peer_pb2.CheckVersionsRequest(versions=[store_version_to_pb(version) for version in versions])
        stub = self._stub(worker)
        reply = await call(
            f"versions held by {worker.worker_id}", lambda: stub.CheckVersions(request, timeout=ASK_TIMEOUT_S)
        )
        if reply.worker.worker_id != worker.worker_id or len(reply.checks) != len(versions):
            raise UnavailableError(f"{worker.peer_address} is {reply.worker.worker_id}, not {worker.worker_id}")
        return [check.held for check in reply.checks]

    async def pull(self, found: Found) -> int:
        """Makes the file be here, from the first holder that gives it; returns the bytes fetched (0: they were here).

        Raises the error of the last holder when none of them gives it.
        """
        store, entry = self._replication.store, found.entry
        async with self._pulling.hold((entry.store, entry.content)):  # the same bytes come once
            if await store.receive_linked(entry):
                self._figures.linked_bytes += entry.size_bytes
                self._replication.post(ev.FileStored(entry, written=False))
                return 0
            failure: RhinoError = UnavailableError(f"{entry.store}/{entry.name}: nobody to fetch it from")
            for holder in found.holders:
                if store.record(entry.store, entry.name) is not None:
                    return 0
                try:
                    await self._fetch(holder, entry)
                except RhinoError as error:
                    log.info("fetch failed", extra={"from": holder.worker_id, "file": entry.name, "error": str(error)})
                    failure = error
                else:
                    self._replication.post(ev.FileStored(entry, written=False))
                    return entry.size_bytes
            raise failure

    async def _fetch(self, holder: Worker, entry: FileEntry) -> None:
        store = self._replication.store
        incoming = await store.resume_incoming(entry)
        if incoming is None:
            incoming = await store.start_incoming(entry)
        self._figures.resumed_bytes += incoming.size_bytes
        try:
            await self._copy(holder, entry, incoming)
        except (IntegrityError, NoSpaceError):  # what has come may be as bad as what is there; or it is in the way
            await asyncio.shield(store.abort_incoming(entry, incoming))
            raise
        except BaseException:
            await asyncio.shield(store.suspend_incoming(entry, incoming))
            raise
        try:
            await store.finish_incoming(entry, incoming)
        except BaseException:
            await asyncio.shield(store.abort_incoming(entry, incoming))
            raise

    async def _copy(self, holder: Worker, entry: FileEntry, incoming: Incoming) -> None:
        request = peer_pb2.FetchRequest(store=store_to_pb(entry.store), name=entry.name, offset=incoming.size_bytes)
        doing = f"fetch of {entry.store}/{entry.name} from {holder.worker_id}"
        stream = self._stub(holder).Fetch(request, timeout=FETCH_TIMEOUT_S)
        try:
            while True:
                async with asyncio.timeout(CHUNK_TIMEOUT_S):
                    chunk = await stream.read()
                if not isinstance(chunk, peer_pb2.FetchChunk):
                    return
                if chunk.offset != incoming.size_bytes or chunk.offset + len(chunk.data) > entry.size_bytes:
                    raise RemoteProtocolError(f"{doing}: chunk at {chunk.offset}, expected {incoming.size_bytes}")
                await self._replication.store.write_incoming(entry, incoming, (chunk.data,))
                self._figures.received_bytes += len(chunk.data)
        except grpc.RpcError as error:
            raise error_of(error, doing) from error
        except TimeoutError as error:
            raise UnavailableError(f"{doing}: nothing came for {CHUNK_TIMEOUT_S} s") from error
        finally:
            stream.cancel()

    def _stub(self, worker: Worker) -> peer_pb2_grpc.PeerAsyncStub:
        address = self._current(worker).peer_address
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = aio_channel(address)
        return peer_pb2_grpc.PeerStub(channel)
