"""The peer service: serves the requests of other sidecars."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc.aio
from crc32c import crc32c

from rhino_archive.manifest import part_of, part_to_pb
from rhino_core.errors import IntegrityError, InvalidRequestError, UnknownError
from rhino_core.ids import FileEntry, GroupId, Lane, parse_name
from rhino_core.rpc.convert import (
    epoch_to_pb,
    file_to_pb,
    group_of,
    group_to_pb,
    store_of,
    store_version_of,
    store_version_to_pb,
    worker_of,
    worker_to_pb,
)
from rhino_core.rpc.inventory import files_to_pb
from rhino_core.security.identity import CALLER
from rhino_core.version import PROTOCOL, check_protocol
from rhino_pb import archive_pb2, common_pb2, peer_pb2, peer_pb2_grpc, sidecar_pb2
from worker_runtime.archiving.drilling import Driller
from worker_runtime.archiving.uploading import Order, Uploader
from worker_runtime.codec import lane_of, scrub_to_pb
from worker_runtime.fetch.serving import Reader, Turnstile, host_of, is_turn
from worker_runtime.manager_link.directory import Directory
from worker_runtime.protocol import events as ev
from worker_runtime.push.links import PROGRESS_S
from worker_runtime.push.listener import PushListener
from worker_runtime.replication import Replication
from worker_runtime.services.branching import Brancher, Empty, VersionLink
from worker_runtime.services.callers import Callers
from worker_runtime.services.describe import Describer
from worker_runtime.statistics import Statistics
from worker_runtime.storage.disk import files
from worker_runtime.upkeep.scrubber import Scrubber

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Answers:
    """The parts for calls of people and of the manager."""

    describer: Describer
    scrubber: Scrubber
    brancher: Brancher
    uploader: Uploader
    driller: Driller


class PeerService(peer_pb2_grpc.PeerServicer):
    """See peer.proto."""

    def __init__(
        self,
        replication: Replication,
        directory: Directory,
        callers: Callers,
        listener: PushListener,
        answers: Answers,
        statistics: Statistics,
        chunk_bytes: int,
    ) -> None:
        self._replication = replication
        self._store = replication.store
        self._directory = directory
        self._callers = callers
        self._listener = listener
        self._answers = answers
        self._statistics = statistics
        self._chunk_bytes = chunk_bytes
        self._turnstile = Turnstile()

    async def OpenPush(self, request: peer_pb2.OpenPushRequest, context: Context) -> peer_pb2.OpenPushReply:
        sender = worker_of(request.sender)
        check_protocol(
            f"sidecar {sender.worker_id!r}", request.protocol, here=f"sidecar {self._replication.me.worker_id!r}"
        )
        self._directory.require(sender)
        ticket = self._listener.admit(
            sender.worker_id, lane_of(request.lane), CALLER.get(), context, encrypts=request.encrypted
        )
        return peer_pb2.OpenPushReply(
            receiver=worker_to_pb(self._replication.me),
            port=self._listener.port,
            token=ticket.token,
            secret=ticket.secret,
            protocol=PROTOCOL,
        )

    async def Inventory(self, request: peer_pb2.InventoryRequest, context: Context) -> peer_pb2.InventoryReply:
        self._callers.require_registered()
        group = group_of(request.group)
        # Read the epoch first: whatever is stored after that is pushed to the members of this epoch.
        epoch = self._replication.view.epoch(group)
        return peer_pb2.InventoryReply(
            worker=worker_to_pb(self._replication.me),
            files=files_to_pb(self._needed_elsewhere(group)),
            epoch=epoch_to_pb(epoch),
            floors=[
                common_pb2.Floor(version=store_version_to_pb(floor)) for floor in self._store.retention.floors_of(group)
            ],
        )

    def _needed_elsewhere(self, group: GroupId) -> list[FileEntry]:
        """Returns the files of a group, without those of given-up commits: nobody must fetch these."""
        given_up = self._replication.view.given_up
        return [entry for entry in self._store.retention.inventory(group) if entry.name not in given_up(entry.store)]

    async def Fetch(self, request: peer_pb2.FetchRequest, context: Context) -> AsyncIterator[peer_pb2.FetchChunk]:
        store = store_of(request.store)
        parse_name(request.name)
        await self._callers.require_user(store.group)
        record = self._store.files.record(store, request.name)
        if record is None:
            raise UnknownError(f"{store}/{request.name} is not here")
        if request.offset > record.entry.size_bytes:
            raise InvalidRequestError(
                f"{store}/{request.name}: offset {request.offset}, but it has {record.entry.size_bytes} bytes"
            )
        yield peer_pb2.FetchChunk(file=file_to_pb(record.entry), offset=request.offset)
        host, told_at = host_of(context.peer()), time.monotonic()
        turn, reader = self._turnstile.enter(host), Reader()  # a refused call has no reader to close
        try:
            while not await is_turn(turn):
                with reader.takes():
                    yield peer_pb2.FetchChunk(offset=request.offset)
            async for chunk in self._chunks(record.entry, request.offset):
                with reader.takes():
                    yield chunk
                self._statistics.sent_bytes += len(chunk.data)
                if (now := time.monotonic()) >= told_at + PROGRESS_S:
                    told_at = now
                    self._replication.post(ev.BytesFetched(store.group))
        finally:
            reader.close()
            self._turnstile.leave(turn, host)

    async def _chunks(self, entry: FileEntry, offset: int) -> AsyncIterator[peer_pb2.FetchChunk]:
        read = crc = 0
        pieces = files.read_pieces(self._store.files.path(entry), self._chunk_bytes)
        while data := await self._next_piece(entry, pieces):
            crc = crc32c(data, crc)
            # Empty for pieces before the offset: these chunks keep the client waiting.
            wanted = data[max(0, offset - read) :]
            read += len(data)
            if read >= entry.size_bytes and crc != entry.crc32c:
                await self._damaged(entry)
            yield peer_pb2.FetchChunk(offset=max(read - len(wanted), offset), data=wanted)
        if read < entry.size_bytes:
            await self._damaged(entry)

    async def _next_piece(self, entry: FileEntry, pieces: Any) -> bytes:
        def read() -> bytes:
            with self._store.disk.errors_of(f"{entry.store}/{entry.name}"):
                return next(pieces, b"")

        return await self._store.threads.run(Lane.BULK, read)

    async def _damaged(self, entry: FileEntry) -> None:
        await self._replication.drop_damaged(entry.store, [entry.name])
        raise IntegrityError(f"{entry.store}/{entry.name}: the stored bytes do not match their checksum")

    async def CheckVersions(
        self, request: peer_pb2.CheckVersionsRequest, context: Context
    ) -> peer_pb2.CheckVersionsReply:
        self._callers.require_registered()
        checks = []
        for message in request.versions:
            version = store_version_of(message)
            held = self._store.catalogue.store(version.store).holds(version.version)
            written = self._store.files.newest.is_written_here(version)
            checks.append(peer_pb2.VersionCheck(version=message, held=held, written_here=written))
        return peer_pb2.CheckVersionsReply(worker=worker_to_pb(self._replication.me), checks=checks)

    async def Describe(self, request: sidecar_pb2.DescribeRequest, context: Context) -> sidecar_pb2.DescribeReply:
        return self._answers.describer.describe(request)

    async def StartScrub(self, request: peer_pb2.StartScrubRequest, context: Context) -> common_pb2.ScrubStatus:
        return scrub_to_pb(self._answers.scrubber.start_now())

    async def Branch(self, request: peer_pb2.BranchRequest, context: Context) -> peer_pb2.BranchReply:
        links = [VersionLink(store_version_of(link.source), store_of(link.target)) for link in request.links]
        empty = [Empty(store_version_of(one.version), group_of(one.like)) for one in request.empty]
        branched = await self._answers.brancher.branch(links, empty, request.timeout_s)
        return peer_pb2.BranchReply(
            worker=worker_to_pb(self._replication.me),
            files=branched.files,
            linked_bytes=branched.linked_bytes,
            duration_ms=branched.duration_ms,
        )

    async def Archive(
        self, request: archive_pb2.ArchiveRequest, context: Context
    ) -> AsyncIterator[archive_pb2.ArchiveReply]:
        versions = tuple(store_version_of(message) for message in request.versions)
        order = Order(request.archive, request.job, versions, tuple(map(part_of, request.basis)))
        async with contextlib.aclosing(self._answers.uploader.run(order)) as steps:
            async for progress in steps:
                yield archive_pb2.ArchiveReply(
                    uploaded_bytes=progress.uploaded_bytes,
                    left_bytes=progress.left_bytes,
                    part=part_to_pb(progress.part) if progress.part is not None else None,
                    refused=[group_to_pb(group) for group in progress.refused],
                    writes=progress.writes,
                    reads=progress.reads,
                )

    async def Drill(self, request: archive_pb2.DrillRequest, context: Context) -> archive_pb2.DrillReply:
        versions = tuple(store_version_of(message) for message in request.versions)
        done = await self._answers.driller.drill(request.archive, part_of(request.part), versions)
        return archive_pb2.DrillReply(rows=done.keys, fetched_bytes=done.fetched_bytes, unproven=done.unproven)
