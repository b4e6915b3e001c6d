"""An executor's view of its node's sidecar: copies files in, makes versions local. Blocking and thread-safe."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rhino_core.errors import LostError, UnavailableError
from rhino_core.ids import FileEntry, FileKind, JobSettings, StoreId, StoreVersion
from rhino_core.rpc import greeting
from rhino_core.rpc.channel import CALL_S_MAX, call_sync, sync_channel
from rhino_core.rpc.convert import settings_to_pb, store_to_pb, store_version_to_pb, version_to_pb
from rhino_core.rpc.gate import checked
from rhino_pb import sidecar_pb2, sidecar_pb2_grpc

ATTACH_TIMEOUT_S = 10.0
RETRY_FOR_S = 30.0


class SidecarSession:
    """One attached session, as a context manager. Its pins end with it.

    `timeout_s`: the sidecar ends a commit after so long without progress. Keepalive finds a silent sidecar.
    """

    def __init__(self, socket: Path, settings: JobSettings, *, client: str, timeout_s: float = 120.0) -> None:
        self._socket = socket
        self._settings = settings
        self._client = client
        self._timeout_s = timeout_s
        self._info = sidecar_pb2.SessionInfo()

    def __enter__(self) -> Self:
        """Raises UnavailableError if no sidecar answers."""
        token = greeting.ask(self._socket)
        self._channel = sync_channel(f"unix://{self._socket.absolute()}")
        self._stub: Any = sidecar_pb2_grpc.SidecarStub(self._channel)
        request = sidecar_pb2.AttachRequest(
            client=self._client,
            settings=settings_to_pb(self._settings),
            commit_timeout_s=self._timeout_s,
            protocol_version="1",
            token=token,
        )

        def first() -> sidecar_pb2.SessionInfo:
            self._stub.Describe(sidecar_pb2.DescribeRequest(), timeout=ATTACH_TIMEOUT_S)  # fails early, unlike a stream
            self._stream = self._stub.Attach(request)
            info: sidecar_pb2.SessionInfo = next(self._stream)
            return info

        try:
            self._info = call_sync(f"attach to the sidecar on {self._socket}", first)
        except BaseException:
            self._channel.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.cancel()
        self._channel.close()

    @property
    def worker_id(self) -> str:
        return str(self._info.worker_id)

    @property
    def manager(self) -> str:
        """ "host:port" of the sidecar's manager."""
        return str(self._info.manager)

    def folder(self, store: StoreId) -> Path:
        """Folder of the sidecar's files of a store. Do not write to it."""
        return Path(self._info.store_root, store.job, str(store.operator), str(store.partition), store.store)

    def store(self, entry: FileEntry, source: Path) -> None:
        """Stores a copy of `source` in the sidecar. Waits for copies of changelogs and snapshots on other workers."""
        name = uuid.uuid4().hex
        shutil.copyfile(source, Path(self._info.inbox, name))
        fields: dict[str, Any] = {
            "session_id": self._info.session_id,
            "store": store_to_pb(entry.store),
            "name": entry.name,
            "inbox_name": name,
        }
        doing = f"store {entry.store}/{entry.name} in the sidecar"
        if entry.kind in (FileKind.CHANGELOG, FileKind.SNAPSHOT):
            lineage = [version_to_pb(version) for version in entry.lineage]
            commit = sidecar_pb2.CommitRequest(**fields, lineage=lineage)
            call_sync(doing, lambda: self._stub.Commit(commit, timeout=CALL_S_MAX), retry_for_s=RETRY_FOR_S)
        else:
            add = sidecar_pb2.AddRequest(**fields)
            call_sync(doing, lambda: self._stub.Add(add, timeout=CALL_S_MAX), retry_for_s=RETRY_FOR_S)

    def prepare(self, version: StoreVersion) -> None:
        """Makes the version available on this node and pins it. Raises LostError, UnavailableError."""
        request = sidecar_pb2.PrepareRequest(session_id=self._info.session_id, versions=[store_version_to_pb(version)])

        doing = f"prepare {version}"

        def attempt() -> None:
            reply = checked(self._stub.Prepare(request, timeout=CALL_S_MAX), doing)
            if reply.state == sidecar_pb2.PREPARE_STATE_LOST:
                raise LostError(f"{version}: {reply.message}")
            if reply.state != sidecar_pb2.PREPARE_STATE_READY:
                raise UnavailableError(f"{version}: {reply.message}")

        call_sync(doing, attempt, retry_for_s=RETRY_FOR_S)
