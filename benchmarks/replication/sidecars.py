"""A chain of real sidecars with a manager, and a client that hands files over as an executor does."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import tempfile
import uuid
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.usage import peak_resident_bytes
from rhino.client import connection
from rhino.testing.process import Process
from rhino.testing.reaper import Reaper
from rhino.testing.rhino_daemons import start_manager, start_sidecar, wait_manager, wait_sidecar
from rhino_core.ids import BelowMinCopies, JobSettings, StoreId, Version
from rhino_core.rpc import greeting
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import settings_to_pb, store_to_pb, version_to_pb
from rhino_core.security.transport import PLAIN
from rhino_core.settings import SidecarSettings
from rhino_pb import sidecar_pb2, sidecar_pb2_grpc

CALL_TIMEOUT_S = 600.0
ADDS_AT_ONCE = 8
JOB = "benchmark"


@dataclass(frozen=True, slots=True)
class Chain:
    """Sidecars in one chain; the first one's executor writes."""

    socket: Path
    sidecars: Sequence[Process]
    manager: Process
    manager_address: str

    @property
    def pids(self) -> list[int]:
        return [self.manager.pid, *(sidecar.pid for sidecar in self.sidecars)]

    def socket_of(self, number: int) -> Path:
        """The socket of sidecar `number`, from 0."""
        return self.socket.with_name(f"{number}.sock")

    def peak_resident_bytes(self) -> int:
        """The highest peak of a sidecar."""
        return max(peak_resident_bytes(sidecar.pid) for sidecar in self.sidecars)


@contextlib.contextmanager
def chain(folder: Path, members: int, options: Sequence[str] = ()) -> Iterator[Chain]:
    """A manager and `members` sidecars, without certificates; everything ends with the context.

    `options`: of `rhino manager`.
    """
    folder.mkdir(parents=True)
    processes: list[Process] = []
    connection.use(PLAIN)
    with Reaper() as reaper, tempfile.TemporaryDirectory(prefix="rhino-bench-") as sockets:
        try:
            manager = start_manager(folder / "manager", log_dir=folder, reaper=reaper, options=options)
            processes.append(manager)
            address = wait_manager(manager)
            sidecars = []
            for number in range(members):
                worker, host = f"worker-{number}", f"127.0.0.{21 + number}"
                socket = Path(sockets, f"{number}.sock")
                settings = SidecarSettings(
                    worker_id=worker,
                    host=host,
                    listen=f"{host}:0",
                    data_dir=folder / worker,
                    socket=socket,
                    manager=address,
                )
                sidecar = start_sidecar(worker, settings, log_dir=folder, reaper=reaper)
                processes.append(sidecar)
                sidecars.append(sidecar)
            for sidecar in sidecars:
                wait_sidecar(sidecar)
            yield Chain(Path(sockets, "0.sock"), sidecars, manager, address)
        finally:
            connection.use(None)
            for process in reversed(processes):
                process.terminate(timeout_s=10)


class Client:
    """An attached session with a sidecar of a chain."""

    def __init__(self, stub: sidecar_pb2_grpc.SidecarAsyncStub, info: sidecar_pb2.SessionInfo) -> None:
        self._stub = stub
        self._info = info

    async def commit(self, store: StoreId, version: Version, content: bytes, lineage: Sequence[Version] = ()) -> None:
        """A changelog, until enough members hold it."""
        name = uuid.uuid4().hex
        Path(self._info.inbox, name).write_bytes(content)
        await self._commit(store, f"{version}.changelog", name, lineage)

    async def snapshot(
        self, store: StoreId, files: Sequence[Path], version: Version | None = None, names: list[str] | None = None
    ) -> Version:
        """Commits data files and then their zip, until enough members hold all of it. By default version 1.

        `names`: data files of former snapshots that the zip names, too. Those of `files` are added.
        """
        version = version or Version(1, uuid.uuid4().hex)
        names = [] if names is None else names
        limit = asyncio.Semaphore(ADDS_AT_ONCE)
        names += await asyncio.gather(*(self._add(store, version.version, path, limit) for path in files))
        zip_name = uuid.uuid4().hex
        Path(self._info.inbox, zip_name).write_bytes(_zip_naming(names))
        await self._commit(store, f"{version}.zip", zip_name, ())
        return version

    async def _add(self, store: StoreId, number: int, path: Path, limit: asyncio.Semaphore) -> str:
        name, dfs_name = uuid.uuid4().hex, f"{number:06d}-{uuid.uuid4()}.sst"
        os.link(path, Path(self._info.inbox, name))
        request = sidecar_pb2.AddRequest(
            session_id=self._info.session_id, store=store_to_pb(store), name=f"SSTs/{dfs_name}", inbox_name=name
        )
        async with limit:
            await self._stub.Add(request, timeout=CALL_TIMEOUT_S)
        return dfs_name

    async def _commit(self, store: StoreId, name: str, inbox_name: str, lineage: Sequence[Version]) -> None:
        request = sidecar_pb2.CommitRequest(
            session_id=self._info.session_id,
            store=store_to_pb(store),
            name=name,
            inbox_name=inbox_name,
            lineage=[version_to_pb(version) for version in lineage],
        )
        await self._stub.Commit(request, timeout=CALL_TIMEOUT_S)


@contextlib.asynccontextmanager
async def attached(socket: Path, replicas: int, *, min_copies: int) -> AsyncIterator[Client]:
    """A session. Its commits return when `min_copies` members hold the version."""
    channel = aio_channel(f"unix://{socket}")
    try:
        stub = sidecar_pb2_grpc.SidecarStub(channel)
        request = sidecar_pb2.AttachRequest(
            client="benchmark",
            settings=settings_to_pb(JobSettings(replicas, min_copies, BelowMinCopies.BLOCK)),
            commit_timeout_s=CALL_TIMEOUT_S,
            protocol_version="1",
            token=await asyncio.to_thread(greeting.ask, socket),
        )
        stream = stub.Attach(request, timeout=2 * CALL_TIMEOUT_S)
        async for info in stream:
            yield Client(stub, info)
            break
        stream.cancel()
    finally:
        await channel.close(None)


def _zip_naming(names: Sequence[str]) -> bytes:
    """A snapshot zip as Spark writes it, as far as a sidecar reads it."""
    files = [{"localFileName": name, "dfsSstFileName": name, "sizeBytes": 1} for name in names]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files, "numKeys": 1}))
    return buffer.getvalue()
