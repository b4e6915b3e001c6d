"""The peer service: what other sidecars ask of this one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from crc32c import crc32c

from rhino.errors import IntegrityError, UnknownError
from rhino.ids import FileEntry, Lane, parse_name
from rhino.rpc.convert import (
    epoch_to_pb,
    file_to_pb,
    group_of,
    store_of,
    store_version_of,
    store_version_to_pb,
    worker_of,
    worker_to_pb,
)
from rhino_pb import common_pb2, peer_pb2, peer_pb2_grpc, sidecar_pb2
from worker_runtime.figures import Figures
from worker_runtime.replication import Replication
from worker_runtime.rpc.convert import lane_of, scrub_to_pb
from worker_runtime.rpc.describe import Describer
from worker_runtime.rpc.door import Door
from worker_runtime.scrubber import Scrubber
from worker_runtime.storage import files

Context = grpc.aio.ServicerContext[Any, Any]


class PeerService(peer_pb2_grpc.PeerServicer):
    """See peer.proto."""

    def __init__(
        self,
        replication: Replication,
        door: Door,
        describer: Describer,
        scrubber: Scrubber,
        figures: Figures,
        chunk_bytes: int,
    ) -> None:
        self._replication = replication
        self._store = replication.store
        self._door = door
        self._describer = describer
        self._scrubber = scrubber
        self._figures = figures
        self._chunk_bytes = chunk_bytes

    async def OpenPush(self, request: peer_pb2.PushHello, context: Context) -> peer_pb2.PushTicket:
        token = self._door.admit(worker_of(request.sender).worker_id, lane_of(request.lane))
        return peer_pb2.PushTicket(receiver=worker_to_pb(self._replication.me), port=self._door.port, token=token)

    async def Inventory(self, request: peer_pb2.InventoryRequest, context: Context) -> peer_pb2.InventoryReply:
        group = group_of(request.group)
        # The epoch first: what is stored after it was read is pushed to the members of that epoch.
        epoch = self._replication.machine.epoch(group)
        return peer_pb2.InventoryReply(
            worker=worker_to_pb(self._replication.me),
            files=[file_to_pb(entry) for entry in self._store.inventory(group)],
            epoch=epoch_to_pb(epoch),
            floors=[common_pb2.Floor(version=store_version_to_pb(floor)) for floor in self._store.floors_of(group)],
        )

    async def Fetch(self, request: peer_pb2.FetchRequest, context: Context) -> AsyncIterator[peer_pb2.FetchChunk]:
        store = store_of(request.store)
        parse_name(request.name)
        record = self._store.record(store, request.name)
        if record is None:
            raise UnknownError(f"{store}/{request.name} is not here")
        entry, read, crc = record.entry, 0, 0
        yield peer_pb2.FetchChunk(file=file_to_pb(entry), offset=request.offset)
        pieces = files.read_pieces(self._store.path(entry), self._chunk_bytes)
        while data := await self._next_piece(entry, pieces):
            crc = crc32c(data, crc)
            wanted = data[max(0, request.offset - read) :]  # nothing of the first pieces: a sign of life
            read += len(data)
            if read >= entry.size_bytes and crc != entry.crc32c:
                await self._damaged(entry)
            yield peer_pb2.FetchChunk(offset=max(read - len(wanted), request.offset), data=wanted)
            self._figures.sent_bytes += len(wanted)
        if read < entry.size_bytes:
            await self._damaged(entry)

    async def _next_piece(self, entry: FileEntry, pieces: Any) -> bytes:
        def read() -> bytes:
            try:
                return next(pieces, b"")
            except OSError as error:
                raise self._store.disk.error(error, f"{entry.store}/{entry.name}") from error

        return await self._store.threads.run(Lane.BULK, read)

    async def _damaged(self, entry: FileEntry) -> None:
        await self._replication.drop_damaged(entry.store, [entry.name])
        raise IntegrityError(f"{entry.store}/{entry.name}: the stored bytes do not match their checksum")

    async def CheckVersions(
        self, request: peer_pb2.CheckVersionsRequest, context: Context
    ) -> peer_pb2.CheckVersionsReply:
        checks = []
        for message in request.versions:
            version = store_version_of(message)
            held = self._store.catalogue.store(version.store).holds(version.version)
            written = self._store.written_here(version)
            checks.append(peer_pb2.VersionCheck(version=message, held=held, written_here=written))
        return peer_pb2.CheckVersionsReply(worker=worker_to_pb(self._replication.me), checks=checks)

    async def Describe(self, request: sidecar_pb2.DescribeRequest, context: Context) -> sidecar_pb2.DescribeReply:
        return self._describer.describe(request)

    async def StartScrub(self, request: peer_pb2.StartScrubRequest, context: Context) -> common_pb2.ScrubStatus:
        return scrub_to_pb(self._scrubber.start_now())
