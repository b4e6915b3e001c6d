"""The local service: what executors on this node ask of their sidecar, over a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from rhino.errors import InvalidRequestError, RhinoError, UnavailableError, UnknownError
from rhino.ids import FileKind, JobSettings, StoreId, StoreVersion, Version, parse_name
from rhino.rpc.convert import epoch_to_pb, file_to_pb, settings_of, store_of, store_version_of, version_of
from rhino.settings import SidecarSettings
from rhino_pb import sidecar_pb2, sidecar_pb2_grpc
from worker_runtime.core import events as ev
from worker_runtime.figures import CommitRecord, Figures, wall_ms
from worker_runtime.replication import Replication
from worker_runtime.rpc.convert import source_to_pb, state_to_pb
from worker_runtime.rpc.describe import Describer
from worker_runtime.rpc.manager import ManagerClient
from worker_runtime.rpc.prepare import Preparer
from worker_runtime.storage.index import StoredFile

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
PROTOCOL_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Session:
    """One attached client. `inbox`: its own folder, gone with it."""

    session_id: str
    client: str
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
        figures: Figures,
    ) -> None:
        self._settings = settings
        self._replication = replication
        self._store = replication.store
        self._manager = manager
        self._preparer = preparer
        self._describer = describer
        self._figures = figures
        self._sessions: dict[str, Session] = {}
        self._working = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    async def drain(self, timeout_s: float) -> None:
        """No new work from now on; waits for what is running, at most `timeout_s`."""
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
        if request.protocol_version not in ("", PROTOCOL_VERSION):
            raise InvalidRequestError(
                f"protocol version {request.protocol_version!r}: this sidecar speaks {PROTOCOL_VERSION!r}"
            )
        if request.commit_timeout_s < 0:
            raise InvalidRequestError(f"commit_timeout_s {request.commit_timeout_s}: must be 0 or more")
        session_id = uuid.uuid4().hex
        session = Session(
            session_id,
            request.client,
            settings_of(request.settings),
            request.commit_timeout_s or self._settings.commit_timeout_s,
            self._store.layout.inbox / session_id,
        )
        session.inbox.mkdir(mode=0o770)
        self._sessions[session_id] = session
        log.info("session attached", extra={"client": session.client, "session": session_id})
        try:
            yield self._session_info(session)
            await asyncio.Event().wait()  # the stream is the session's life line
        finally:
            self._end(session)

    def _session_info(self, session: Session) -> sidecar_pb2.SessionInfo:
        return sidecar_pb2.SessionInfo(
            session_id=session.session_id,
            worker_id=self._replication.me.worker_id,
            host=self._replication.me.host,
            store_root=str(self._store.layout.store.absolute()),
            inbox=str(session.inbox.absolute()),
            manager=self._manager.address,
        )

    def _end(self, session: Session) -> None:
        del self._sessions[session.session_id]
        self._store.pins.end(session.session_id)
        self._store.discard_folder(session.inbox)
        log.info("session ended", extra={"client": session.client, "session": session.session_id})

    def _session(self, session_id: str) -> Session:
        self._require_open()
        session = self._sessions.get(session_id)
        if session is None:
            raise UnknownError(f"session {session_id!r} is not attached; attach again")
        return session

    def _require_open(self) -> None:
        if self._draining:
            raise UnavailableError(f"sidecar {self._replication.me.worker_id} is shutting down")

    # ------------------------------------------------------------ files

    async def Add(self, request: sidecar_pb2.AddRequest, context: Context) -> sidecar_pb2.AddReply:
        session, store = self._session(request.session_id), store_of(request.store)
        if parse_name(request.name).kind.versioned:
            raise InvalidRequestError(f"{request.name}: Add takes SST and log files; use Commit")
        record = await self._uncancelled(self._add(session, store, request))
        return sidecar_pb2.AddReply(size_bytes=record.entry.size_bytes)

    async def _add(self, session: Session, store: StoreId, request: sidecar_pb2.AddRequest) -> StoredFile:
        await self._manager.known(store.group, session.settings)
        source = _inbox_file(session, request.inbox_name)
        record = await self._store.take_over(store, request.name, source)
        self._replication.post(ev.FileStored(record.entry, written=True))
        return record

    async def Commit(self, request: sidecar_pb2.CommitRequest, context: Context) -> sidecar_pb2.CommitReply:
        started = time.monotonic()
        self._replication.precedence.commit()
        session, store = self._session(request.session_id), store_of(request.store)
        kind, version = parse_name(request.name)
        if version is None or version.version < 1:
            raise InvalidRequestError(f"{request.name}: Commit takes a changelog or a zip of version 1 or later")
        lineage = _lineage(version, [version_of(message) for message in request.lineage])
        if request.timeout_s < 0:
            raise InvalidRequestError(f"timeout_s {request.timeout_s}: must be 0 or more")
        with contextlib.ExitStack() as until_done:
            until_done.enter_context(self._busy())
            record = await self._uncancelled(self._take_versioned(session, store, request, lineage))
            if kind is FileKind.SNAPSHOT:
                until_done.close()  # copies of gigabytes: a sidecar that stops does not wait, the client tries again
            copies = await self._replication.commit(record.entry, request.timeout_s or session.commit_timeout_s)
        duration_ms = (time.monotonic() - started) * 1000
        entry = record.entry
        self._figures.committed(
            CommitRecord(
                StoreVersion(store, version), entry.kind, entry.size_bytes, copies.copies, duration_ms, wall_ms()
            )
        )
        return sidecar_pb2.CommitReply(copies=copies.copies, duration_ms=duration_ms, epoch=epoch_to_pb(copies.epoch))

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        """While this lasts, `drain` waits."""
        self._working += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._working -= 1
            if self._working == 0:
                self._idle.set()

    async def _take_versioned(
        self, session: Session, store: StoreId, request: sidecar_pb2.CommitRequest, lineage: tuple[Version, ...]
    ) -> StoredFile:
        await self._manager.known(store.group, session.settings)
        return await self._store.take_over(store, request.name, _inbox_file(session, request.inbox_name), lineage)

    async def _uncancelled(self, work: Any) -> Any:
        """Goes on when the client hangs up: a file is taken over wholly or not at all."""
        return await asyncio.shield(asyncio.ensure_future(work))

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
            self._store.pins.end(session.session_id)  # it ended meanwhile: no pins are left behind
        return sidecar_pb2.PrepareReply(
            state=state_to_pb(record.state),
            source=source_to_pb(record.source),
            fetched_bytes=record.fetched_bytes,
            duration_ms=record.duration_ms,
            message=record.message,
        )

    async def _name_groups(self, session: Session, versions: list[StoreVersion]) -> None:
        """The first that names a group owns it. Not having a manager must not keep a held version from loading."""
        for group in sorted({version.store.group for version in versions}):
            try:
                await self._manager.name(group, session.settings)
            except RhinoError as error:
                log.warning("group is not known", extra={"group": str(group), "error": str(error)})

    async def Release(self, request: sidecar_pb2.ReleaseRequest, context: Context) -> sidecar_pb2.ReleaseReply:
        if request.session_id in self._sessions:
            self._store.pins.release(request.session_id, [store_version_of(message) for message in request.versions])
        return sidecar_pb2.ReleaseReply()

    # ------------------------------------------------------------ questions

    async def List(self, request: sidecar_pb2.ListRequest, context: Context) -> sidecar_pb2.ListReply:
        records = self._store.visible_files(store_of(request.store))
        return sidecar_pb2.ListReply(
            files=[file_to_pb(record.entry) for record in records],
            modified_ms=[record.seal.mtime_ns // 1_000_000 for record in records],
        )

    async def Stat(self, request: sidecar_pb2.StatRequest, context: Context) -> sidecar_pb2.StatReply:
        parse_name(request.name)
        record = self._store.record(store_of(request.store), request.name)
        if record is None or not record.visible:
            return sidecar_pb2.StatReply(exists=False)
        modified_ms = record.seal.mtime_ns // 1_000_000
        return sidecar_pb2.StatReply(exists=True, file=file_to_pb(record.entry), modified_ms=modified_ms)

    async def Describe(self, request: sidecar_pb2.DescribeRequest, context: Context) -> sidecar_pb2.DescribeReply:
        return self._describer.describe(request)


def _inbox_file(session: Session, name: str) -> Path:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise InvalidRequestError(f"inbox name {name!r}: must be a plain file name inside the session's inbox")
    return session.inbox / name


def _lineage(version: Version, lineage: list[Version]) -> tuple[Version, ...]:
    """Oldest first, rising, all before `version`."""
    numbers = [*(before.version for before in lineage), version.version]
    if any(earlier >= later for earlier, later in itertools.pairwise(numbers)):
        raise InvalidRequestError(f"lineage of {version}: {numbers[:-1]} must rise and end before {version.version}")
    return tuple(lineage)
