"""Requests to other sidecars: inventories, version checks, files."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

import grpc.aio

from rhino_core.errors import IntegrityError, NoSpaceError, RemoteProtocolError, RhinoError, UnavailableError
from rhino_core.ids import FileEntry, GroupId, StoreVersion, Worker
from rhino_core.rpc.channel import call, worker_channel
from rhino_core.rpc.convert import epoch_of, group_to_pb, store_to_pb, store_version_to_pb, worker_of
from rhino_core.rpc.gate import checked
from rhino_core.rpc.inventory import files_of
from rhino_core.rpc.status import error_of
from rhino_core.security.transport import Transport
from rhino_pb import peer_pb2, peer_pb2_grpc
from worker_runtime.manager_link.directory import Directory
from worker_runtime.precedence import Turns
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies.pulling import Found, Inventory
from worker_runtime.protocol.keys import same_bytes
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics
from worker_runtime.storage.disk.incoming import Incoming
from worker_runtime.storage.disk.locks import KeyedLocks

log = logging.getLogger(__name__)
ASK_TIMEOUT_S = 3.0
CHUNK_TIMEOUT_S = 15.0  # a fetch without another chunk for so long is abandoned
UNUSED_S = 600.0  # a connection used within this time may still carry a fetch
Reached = Callable[[FileEntry, int], None]
Copy = Callable[[Incoming], Awaitable[None]]
Connected = tuple[str, str, int]  # worker id, address, and the edition of this worker's own certificate
FETCH_TIMEOUT_S = 24 * 3600.0  # every call needs a deadline; progress is checked per chunk


class Peers:
    """Calls to other sidecars, on connections separate from those of pushes."""

    def __init__(
        self, replication: Replication, statistics: Statistics, directory: Directory, transport: Transport
    ) -> None:
        self._directory = directory
        self._replication = replication
        self._statistics = statistics
        self._transport = transport
        self._channels: dict[Connected, grpc.aio.Channel] = {}
        self._used_at: dict[Connected, float] = {}  # monotonic seconds
        self._pulling = KeyedLocks()
        self.turns = Turns(lambda: replication.store.pins.loading)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close(None)

    async def tidy(self) -> None:
        """Closes unused connections to workers that this worker no longer deals with, or with a former certificate."""
        found = (self._directory.find(worker_id) for worker_id in self._directory.wanted())
        needed = {self._connected(worker) for worker in found if worker is not None}
        unused_since = time.monotonic() - UNUSED_S
        for key in [key for key, at in self._used_at.items() if key not in needed and at < unused_since]:
            del self._used_at[key]
            await self._channels.pop(key).close(None)

    async def inventory(self, worker: Worker, group: GroupId) -> Inventory:
        """Fetches the worker's inventory of a group. Raises UnavailableError and other RhinoErrors."""
        request = peer_pb2.InventoryRequest(group=group_to_pb(group))
        stub = self._stub(worker)
        reply = await call(
            f"inventory of {group} from {worker.worker_id}",
            lambda: stub.Inventory(request, timeout=ASK_TIMEOUT_S),
        )
        if reply.worker.worker_id != worker.worker_id:
            raise UnavailableError(f"{worker.peer_address} is {reply.worker.worker_id}, not {worker.worker_id}")
        return Inventory(worker_of(reply.worker), files_of(reply.files), epoch_of(reply.epoch))

    async def held(self, worker: Worker, versions: list[StoreVersion]) -> list[bool]:
        """Whether the worker holds each of the versions. Raises UnavailableError and other RhinoErrors."""
        request = peer_pb2.CheckVersionsRequest(versions=[store_version_to_pb(version) for version in versions])
        stub = self._stub(worker)
        reply = await call(
            f"versions held by {worker.worker_id}", lambda: stub.CheckVersions(request, timeout=ASK_TIMEOUT_S)
        )
        if reply.worker.worker_id != worker.worker_id or len(reply.checks) != len(versions):
            raise UnavailableError(f"{worker.peer_address} is {reply.worker.worker_id}, not {worker.worker_id}")
        return [check.held for check in reply.checks]

    async def pull(self, found: Found, reached: Reached = lambda entry, offset: None) -> int:
        """Gets the file from the first holder able to deliver it. Returns the bytes fetched (0: they were already
        here).

        `reached` is told the offset after each chunk. A file of this name with other bytes is replaced once these are
        here. Raises the error of the last holder if none of them delivers it.
        """
        entry = found.entry
        async with self._pulling.hold((entry.store, entry.content)):  # fetch the same bytes only once
            if await self._linked(entry):
                return 0
            failure: RhinoError = UnavailableError(f"{entry.store}/{entry.name}: nobody to fetch it from")
            for holder in found.holders:
                if self.is_here(entry):
                    return 0
                try:
                    return await self._fetch(holder.worker_id, entry, partial(self._copy, holder, entry, reached))
                except RhinoError as error:
                    log.info("fetch failed", extra={"from": holder.worker_id, "file": entry.name, "error": str(error)})
                    failure = error
            raise failure

    async def receive(self, entry: FileEntry, source: str, copy: Copy) -> int:
        """Like `pull`, from elsewhere than a worker. `copy` appends the bytes that are missing.

        Raises the errors of `copy`, and those of a file that cannot be stored.
        """
        async with self._pulling.hold((entry.store, entry.content)):
            if self.is_here(entry) or await self._linked(entry):
                return 0
            return await self._fetch(source, entry, copy)

    def is_here(self, entry: FileEntry) -> bool:
        """Whether a file of this name is here, with the same bytes."""
        known = self._replication.store.files.record(entry.store, entry.name)
        return known is not None and same_bytes(known.entry, entry)

    async def _linked(self, entry: FileEntry) -> bool:
        """Whether the file is here now as a link to another one with the same bytes."""
        store = self._replication.store
        if store.files.record(entry.store, entry.name) is not None or not await store.received.receive_linked(entry):
            return False
        self._statistics.linked_bytes += entry.size_bytes
        self._replication.post(ev.FileStored(entry, written=False))
        return True

    async def _fetch(self, source: str, entry: FileEntry, copy: Copy) -> int:
        store = self._replication.store
        incoming = await store.received.resume(entry)
        if incoming is None:
            incoming = await store.received.begin(entry)
        self._statistics.resumed_bytes += incoming.size_bytes
        try:
            await copy(incoming)
        except (IntegrityError, NoSpaceError):  # the received bytes may be damaged, or they occupy space that is needed
            await asyncio.shield(store.received.abort(entry, incoming))
            raise
        except BaseException:
            await asyncio.shield(store.received.suspend(entry, incoming))
            raise
        try:
            await self._replace(source, entry, incoming)
            await store.received.finish(entry, incoming)
        except BaseException:
            await asyncio.shield(store.received.abort(entry, incoming))
            raise
        self._replication.post(ev.FileStored(entry, written=False))
        return entry.size_bytes

    async def _replace(self, source: str, entry: FileEntry, incoming: Incoming) -> None:
        """Drops a file of this name with other bytes, unless the new ones are wrong. Raises IntegrityError."""
        known = self._replication.store.files.record(entry.store, entry.name)
        if known is None or same_bytes(known.entry, entry):
            return
        incoming.require(entry.size_bytes, entry.crc32c)
        log.error(
            "a file here has other bytes than at a member of its group: it is dropped, and fetched from there",
            extra={
                "store": str(entry.store),
                "file": entry.name,
                "peer": source,
                "here": f"{known.entry.size_bytes} bytes, crc32c {known.entry.crc32c:08x}",
                "there": f"{entry.size_bytes} bytes, crc32c {entry.crc32c:08x}",
            },
        )
        await self._replication.drop_damaged(entry.store, [entry.name])

    async def _copy(self, holder: Worker, entry: FileEntry, reached: Reached, incoming: Incoming) -> None:
        request = peer_pb2.FetchRequest(store=store_to_pb(entry.store), name=entry.name, offset=incoming.size_bytes)
        doing = f"fetch of {entry.store}/{entry.name} from {holder.worker_id}"
        stream = self._stub(holder).Fetch(request, timeout=FETCH_TIMEOUT_S)
        try:
            while True:
                async with asyncio.timeout(CHUNK_TIMEOUT_S):
                    chunk = await stream.read()
                if not isinstance(chunk, peer_pb2.FetchChunk):
                    return
                checked(chunk, doing)
                if chunk.offset != incoming.size_bytes or chunk.offset + len(chunk.data) > entry.size_bytes:
                    raise RemoteProtocolError(f"{doing}: chunk at {chunk.offset}, expected {incoming.size_bytes}")
                await self._replication.store.received.append(entry, incoming, (chunk.data,))
                self._statistics.received_bytes += len(chunk.data)
                reached(entry, incoming.size_bytes)
        except grpc.RpcError as error:
            raise error_of(error, doing) from error
        except TimeoutError as error:
            raise UnavailableError(f"{doing}: nothing came for {CHUNK_TIMEOUT_S} s") from error
        finally:
            stream.cancel()

    def _connected(self, worker: Worker) -> Connected:
        return worker.worker_id, worker.peer_address, self._transport.edition

    def _stub(self, worker: Worker) -> peer_pb2_grpc.PeerAsyncStub:
        worker = self._directory.current(worker)
        key = self._connected(worker)
        self._used_at[key] = time.monotonic()
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = worker_channel(worker, self._transport)
        return peer_pb2_grpc.PeerStub(channel)
