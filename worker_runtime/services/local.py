"""The local service: serves the executors of this node over a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio

from rhino_core.errors import InvalidRequestError, RhinoError, UnavailableError, UnknownError
from rhino_core.folder import FOLDER_MODE
from rhino_core.ids import FileKind, JobSettings, StoreId, StoreVersion, Version, parse_name
from rhino_core.rpc import audited
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb, settings_of, store_of, store_version_of, versions_of
from rhino_core.settings import SidecarSettings
from rhino_pb import sidecar_pb2, sidecar_pb2_grpc
from worker_runtime.codec import STATE_TO_PB, source_to_pb
from worker_runtime.fetch.prepare import Preparer
from worker_runtime.manager_link.client import ManagerClient
from worker_runtime.protocol import events as ev
from worker_runtime.replication import Replication
from worker_runtime.services.describe import Describer
from worker_runtime.services.greeter import Greeter, principal_of
from worker_runtime.statistics import CommitRecord, Statistics, wall_ms
from worker_runtime.storage.index.stored_file import StoredFile

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
PROTOCOL_VERSION = "1"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AttachedClient:
    """One attached client. `inbox`: its own folder, deleted at the end of the session.

    `session_id`: a secret. It marks calls as the session's. `number`: the same session in logs.
    """

    session_id: str
    number: int
    client: str
    uid: int  # its Unix user
    settings: JobSettings
    commit_timeout_s: float
    inbox: Path


class SidecarService(sidecar_pb2_grpc.SidecarServicer):
    """See sidecar.proto."""

    def __init__(
        self,
        settings: SidecarSettings,
        replication: Replication,
        manager: ManagerClient,
        preparer: Preparer,
        describer: Describer,
        statistics: Statistics,
        greeter: Greeter,
    ) -> None:
        self._settings = settings
        self._replication = replication
        self._store = replication.store
        self._manager = manager
        self._preparer = preparer
        self._describer = describer
        self._statistics = statistics
        self._greeter = greeter
        self._sessions: dict[str, AttachedClient] = {}
        self._numbers = itertools.count(1)
        self._working = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    @property
    def waiting_commits(self) -> int:
        """Number of commits under way."""
        return self._working

    async def drain(self, timeout_s: float) -> None:
        """Refuse new work from now on. Wait for running work, at most `timeout_s`."""
        self._draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("commits are still waiting for copies", extra={"commits": self._working})

    # ------------------------------------------------------------ sessions

    async def Attach(
        self, request: sidecar_pb2.AttachRequest, context: Context
    ) -> AsyncIterator[sidecar_pb2.SessionInfo]:
        self._require_open()
        if request.protocol_version != PROTOCOL_VERSION:
            raise InvalidRequestError(
                f"protocol version {request.protocol_version!r}: this sidecar speaks {PROTOCOL_VERSION!r}"
            )
        uid = self._greeter.redeem(request.token)
        audited.principal(principal_of(uid))
        session = AttachedClient(
            secrets.token_hex(16),
            next(self._numbers),
            request.client,
            uid,
            settings_of(request.settings),
            request.commit_timeout_s or self._settings.commit_timeout_s,
            self._store.layout.inbox / uuid.uuid4().hex,
        )
        with self._store.disk.errors_of(str(session.inbox)):
            session.inbox.mkdir(mode=FOLDER_MODE)
        self._sessions[session.session_id] = session
        log.info("session attached", extra={"client": session.client, "session": session.number, "uid": session.uid})
        try:
            yield self._session_info(session)
            await asyncio.Event().wait()  # the session lasts as long as this stream
        finally:
            self._end(session)

    def _session_info(self, session: AttachedClient) -> sidecar_pb2.SessionInfo:
        return sidecar_pb2.SessionInfo(
            session_id=session.session_id,
            worker_id=self._replication.me.worker_id,
            host=self._replication.me.host,
            store_root=str(self._store.layout.store.absolute()),
            inbox=str(session.inbox.absolute()),
            manager=self._manager.address,
        )

    def _end(self, session: AttachedClient) -> None:
        del self._sessions[session.session_id]
        self._store.pins.end(session.session_id)
        self._store.trash.discard(session.inbox)
        log.info("session ended", extra={"client": session.client, "session": session.number, "uid": session.uid})

    def _session(self, session_id: str) -> AttachedClient:
        self._require_open()
        session = self._sessions.get(session_id)
        if session is None:
            raise UnknownError("the session of this call is not attached; attach again")
        return session

    def _require_open(self) -> None:
        if self._draining:
            raise UnavailableError(f"sidecar {self._replication.me.worker_id} is shutting down")

    # ------------------------------------------------------------ files

    async def Add(self, request: sidecar_pb2.AddRequest, context: Context) -> sidecar_pb2.AddReply:
        session, store = self._session(request.session_id), store_of(request.store)
        if parse_name(request.name).kind.versioned:
            raise InvalidRequestError(f"{request.name}: Add takes SST and log files; use Commit")
        record = await uncancelled(self._add(session, store, request))
        return sidecar_pb2.AddReply(size_bytes=record.entry.size_bytes)

    async def _add(self, session: AttachedClient, store: StoreId, request: sidecar_pb2.AddRequest) -> StoredFile:
        await self._manager.known(store.group, session.settings)
        source = session.inbox / request.inbox_name
        with self._store.inbox.using(source):
            record = await self._store.uploads.take_over(store, request.name, source)
        self._replication.post(ev.FileStored(record.entry, written=True))
        return record

    async def Commit(self, request: sidecar_pb2.CommitRequest, context: Context) -> sidecar_pb2.CommitReply:
        started = time.monotonic()
        self._replication.precedence.commit()
        session, store = self._session(request.session_id), store_of(request.store)
        kind, version = parse_name(request.name)
        if version is None or version.version < 1:
            raise InvalidRequestError(f"{request.name}: Commit takes a changelog or a zip of version 1 or later")
        lineage = _lineage(version, versions_of(request.lineage))
        with contextlib.ExitStack() as until_done:
            until_done.enter_context(self._busy())
            record = await uncancelled(self._take_versioned(session, store, request, lineage))
            if kind is FileKind.SNAPSHOT:
                # Copying gigabytes takes long: a stopping sidecar does not wait, and the client retries.
                until_done.close()
            copies = await self._replication.commit(record.entry, request.timeout_s or session.commit_timeout_s)
        duration_ms = (time.monotonic() - started) * 1000
        entry = record.entry
        self._statistics.committed(
            CommitRecord(
                StoreVersion(store, version), entry.kind, entry.size_bytes, copies.copies, duration_ms, wall_ms()
            )
        )
        return sidecar_pb2.CommitReply(copies=copies.copies, duration_ms=duration_ms, epoch=epoch_to_pb(copies.epoch))

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """`drain` waits while this context is active."""
        self._working += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._working -= 1
            if self._working == 0:
                self._idle.set()

    async def _take_versioned(
        self, session: AttachedClient, store: StoreId, request: sidecar_pb2.CommitRequest, lineage: tuple[Version, ...]
    ) -> StoredFile:
        await self._manager.known(store.group, session.settings)
        source = session.inbox / request.inbox_name
        with self._store.inbox.using(source):
            return await self._store.uploads.take_over(store, request.name, source, lineage)

    # ------------------------------------------------------------ versions

    async def Prepare(self, request: sidecar_pb2.PrepareRequest, context: Context) -> sidecar_pb2.PrepareReply:
        session = self._session(request.session_id)
        versions = [store_version_of(message) for message in request.versions]
        if not versions:
            raise InvalidRequestError("Prepare names no version")
        for version in versions:
            self._manager.require_unforgotten(version.store.group)
        await self._name_groups(session, versions)
        record = await self._preparer.prepare(session.session_id, versions)
        if session.session_id not in self._sessions:
            self._store.pins.end(session.session_id)  # the session ended meanwhile: leave no pins behind
        return sidecar_pb2.PrepareReply(
            state=STATE_TO_PB[record.state],
            source=source_to_pb(record.source),
            fetched_bytes=record.fetched_bytes,
            duration_ms=record.duration_ms,
            message=record.message,
        )

    async def _name_groups(self, session: AttachedClient, versions: list[StoreVersion]) -> None:
        """Resolves the groups; the first worker to name a group owns it.

        A held version must load even without a manager.
        """
        for group in sorted({version.store.group for version in versions}):
            try:
                await self._manager.name(group, session.settings)
            except RhinoError as error:
                log.warning("group is not known", extra={"group": str(group), "error": str(error)})

    async def Release(self, request: sidecar_pb2.ReleaseRequest, context: Context) -> sidecar_pb2.ReleaseReply:
        if request.session_id in self._sessions:
            self._store.pins.release(request.session_id, [store_version_of(message) for message in request.versions])
        return sidecar_pb2.ReleaseReply()

    # ------------------------------------------------------------ queries

    async def List(self, request: sidecar_pb2.ListRequest, context: Context) -> sidecar_pb2.ListReply:
        self._session(request.session_id)
        records = self._store.files.visible(store_of(request.store))
        return sidecar_pb2.ListReply(
            # All lineages together could be long.
            files=[file_to_pb(replace(record.entry, lineage=())) for record in records],
            modified_ms=[record.seal.mtime_ns // 1_000_000 for record in records],
        )

    async def Stat(self, request: sidecar_pb2.StatRequest, context: Context) -> sidecar_pb2.StatReply:
        self._session(request.session_id)
        parse_name(request.name)
        record = self._store.files.record(store_of(request.store), request.name)
        if record is None or not record.visible:
            return sidecar_pb2.StatReply(exists=False)
        modified_ms = record.seal.mtime_ns // 1_000_000
        return sidecar_pb2.StatReply(exists=True, file=file_to_pb(record.entry), modified_ms=modified_ms)

    async def Describe(self, request: sidecar_pb2.DescribeRequest, context: Context) -> sidecar_pb2.DescribeReply:
        # Clients ask before they attach. Among several users, one without a session learns no names of jobs.
        shared = self._settings.allow_uid or self._settings.socket_group
        return self._describer.describe(sidecar_pb2.DescribeRequest() if shared else request)


async def uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Run the work to its end even if the client disconnects: a file is taken over completely or not at all."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_given_up)
        raise


def _given_up(task: asyncio.Task[T]) -> None:
    """Nobody waits for the answer any more: log an error."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.info("failed after its client had hung up", extra={"error": str(error)})


def _lineage(version: Version, lineage: list[Version]) -> tuple[Version, ...]:
    """Check the lineage: oldest first, ascending, all before `version`. Raises InvalidRequestError."""
    numbers = [*(before.version for before in lineage), version.version]
    if any(earlier >= later for earlier, later in itertools.pairwise(numbers)):
        raise InvalidRequestError(f"lineage of {version}: {numbers[:-1]} must rise and end before {version.version}")
    return tuple(lineage)
