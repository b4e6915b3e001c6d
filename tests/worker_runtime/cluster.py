"""Real sidecars as subprocesses around a fake manager, and a client that does what an executor does."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
import uuid
import zipfile
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rhino_core.ids import StoreId, StoreVersion, Version, Worker
from rhino_core.rpc import greeting
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import store_to_pb, store_version_to_pb, version_to_pb
from rhino_core.settings import SidecarSettings
from rhino_pb import common_pb2, sidecar_pb2, sidecar_pb2_grpc
from tests import forked
from tests.worker_runtime.fake_manager import FakeManager

ROOT = Path(__file__).resolve().parents[2]
MAIN = """
import asyncio, json, logging, os, resource, sys
from pathlib import Path
from rhino_core import failpoints
from rhino_core.log import configure_logging
from rhino_core.settings import SidecarSettings
from tests.worker_runtime import platter
from worker_runtime.sidecar import run_sidecar
import dataclasses, signal, uvloop

async def main() -> None:
    fields = json.loads(sys.argv[1])
    settings = SidecarSettings(**{k: Path(v) if k in ("data_dir", "socket") else v for k, v in fields.items()})
    if "TEST_DESCRIPTORS" in os.environ:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(os.environ["TEST_DESCRIPTORS"]),) * 2)
    if "TEST_PLATTER" in os.environ:
        platter.install(settings.data_dir, Path(os.environ["TEST_PLATTER"]), os.environ["TEST_BOOT_ID"])
    if "TEST_SYNC_GATE" in os.environ:
        platter.install_gate(Path(os.environ["TEST_SYNC_GATE"]))
    if "TEST_GAUGE" in os.environ:
        from tests.soak import gauge
        await gauge.install()
    def arm() -> None:
        failpoints.arm({failpoints.VARIABLE: points.read_text()})
        points.unlink()

    points = settings.data_dir.parent / "failpoints"
    task = asyncio.current_task()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, arm)
    try:
        await run_sidecar(settings, lambda worker: print(json.dumps(dataclasses.asdict(worker)), flush=True))
    except asyncio.CancelledError:
        pass

configure_logging("info", json_lines=True)
uvloop.run(main())  # as the command line does
"""


def changelog_bytes(seed: int, size: int = 2000) -> bytes:
    return bytes((seed * 31 + i) % 251 for i in range(size))


def zip_bytes(*ssts: str) -> bytes:
    """A snapshot zip as Spark writes it, naming these SST files (without folder)."""
    metadata = {"sstFiles": [{"localFileName": s, "dfsSstFileName": s, "sizeBytes": 1} for s in ssts], "numKeys": 1}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps(metadata))
        archive.writestr("CURRENT", "MANIFEST-000001\n")
    return buffer.getvalue()


@dataclass
class Process:
    """One sidecar process."""

    settings: SidecarSettings
    process: asyncio.subprocess.Process | forked.Forked | None = None
    worker: Worker | None = None
    environment: dict[str, str] = field(default_factory=dict)  # on top of this process's own

    async def start(self, *, wait: bool = True, failpoints: str = "") -> None:
        fields = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self.settings).items()}
        env = {**os.environ, "PYTHONPATH": forked.PYTHON_PATH, "RHINO_FAILPOINTS": failpoints, **self.environment}
        with (self.settings.data_dir.parent / "log").open("ab") as log:
            if "TEST_GAUGE" in env:  # it measures a process with nothing from another one
                command = (sys.executable, "-c", MAIN, json.dumps(fields))
                pipe = asyncio.subprocess.PIPE
                self.process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=log, env=env)
            else:
                self.process = await forked.start(MAIN, json.dumps(fields), env=env, stderr=log.fileno())
        if wait:
            await self.ready()

    async def ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        async with asyncio.timeout(90):  # a dozen may start at once on a busy machine
            line = await self.process.stdout.readline()
        assert line, f"the sidecar has ended; its log is in {self.settings.data_dir.parent / 'log'}"
        self.worker = Worker(**json.loads(line))

    async def arm(self, failpoints: str) -> None:
        """In the running process, instead of those that were armed."""
        assert self.process is not None
        armed = self.settings.data_dir.parent / "failpoints"
        armed.write_text(failpoints)
        self.process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(20):
            while armed.exists():  # noqa: ASYNC110  a file system sends no notification
                await asyncio.sleep(0.01)

    async def end(self, number: int = signal.SIGKILL) -> int:
        """Sends the signal and waits for the end; the exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(60):
            return await self.process.wait()

    @contextlib.asynccontextmanager
    async def attach(
        self,
        *,
        commit_timeout_s: float = 10.0,
        replicas: int = 1,
        synced: bool = False,
        patient: bool = False,
        token: bytes | None = None,
    ) -> AsyncIterator[Client]:
        """`patient`: on a busy machine the first attempts to connect may fail, though the sidecar is there.

        `token`: None: the greeter is asked for it.
        """
        channel = aio_channel(f"unix://{self.settings.socket}")
        try:
            stub = sidecar_pb2_grpc.SidecarStub(channel)
            settings = common_pb2.JobSettings(
                replication_factor=replicas,
                replication_factor_set=True,
                durability=common_pb2.DURABILITY_SYNCED if synced else common_pb2.DURABILITY_REPLICATED,
            )
            request = sidecar_pb2.AttachRequest(
                client="test", settings=settings, commit_timeout_s=commit_timeout_s, protocol_version="1"
            )
            request.token = await asyncio.to_thread(greeting.ask, self.settings.socket) if token is None else token
            stream: Any = stub.Attach(request, timeout=120, wait_for_ready=patient)
            info = await stream.read()
            yield Client(stub, info)
            stream.cancel()
        finally:
            await channel.close(None)


@dataclass
class Client:
    """An executor with an attached session."""

    stub: Any
    info: sidecar_pb2.SessionInfo
    written: dict[str, bytes] = field(default_factory=dict)

    def put(self, content: bytes) -> str:
        name = uuid.uuid4().hex
        Path(self.info.inbox, name).write_bytes(content)
        return name

    async def commit(
        self,
        store: StoreId,
        version: Version,
        content: bytes,
        lineage: list[Version],
        *,
        end: str = "changelog",
        timeout_s: float = 0.0,
    ) -> sidecar_pb2.CommitReply:
        request = sidecar_pb2.CommitRequest(
            session_id=self.info.session_id,
            store=store_to_pb(store),
            name=f"{version}.{end}",
            inbox_name=self.put(content),
            lineage=[version_to_pb(v) for v in lineage],
            timeout_s=timeout_s,
        )
        reply: sidecar_pb2.CommitReply = await self.stub.Commit(request, timeout=60)
        return reply

    async def add(self, store: StoreId, name: str, content: bytes) -> None:
        await self._add(store, name, self.put(content))

    async def add_link(self, store: StoreId, name: str, of: Path) -> None:
        inbox_name = uuid.uuid4().hex
        os.link(of, Path(self.info.inbox, inbox_name))
        await self._add(store, name, inbox_name)

    async def _add(self, store: StoreId, name: str, inbox_name: str) -> None:
        request = sidecar_pb2.AddRequest(
            session_id=self.info.session_id, store=store_to_pb(store), name=name, inbox_name=inbox_name
        )
        await self.stub.Add(request, timeout=60)

    async def prepare(self, store: StoreId, *versions: Version) -> sidecar_pb2.PrepareReply:
        request = sidecar_pb2.PrepareRequest(
            session_id=self.info.session_id, versions=[store_version_to_pb(StoreVersion(store, v)) for v in versions]
        )
        reply: sidecar_pb2.PrepareReply = await self.stub.Prepare(request, timeout=60)
        return reply

    async def release(self, store: StoreId, *versions: Version) -> None:
        request = sidecar_pb2.ReleaseRequest(
            session_id=self.info.session_id, versions=[store_version_to_pb(StoreVersion(store, v)) for v in versions]
        )
        await self.stub.Release(request, timeout=10)

    async def names(self, store: StoreId) -> list[str]:
        request = sidecar_pb2.ListRequest(store=store_to_pb(store), session_id=self.info.session_id)
        reply = await self.stub.List(request, timeout=10)
        return [file.name for file in reply.files]

    async def describe(self) -> sidecar_pb2.DescribeReply:
        request = sidecar_pb2.DescribeRequest(prepares_max=100, commits_max=100)
        reply: sidecar_pb2.DescribeReply = await self.stub.Describe(request, timeout=10)
        return reply

    def path(self, store: StoreId, name: str) -> Path:
        return Path(self.info.store_root, store.job, str(store.operator), str(store.partition), store.store, name)


class Cluster:
    """A fake manager and sidecars "a", "b", "c", each in its own process."""

    def __init__(self, folder: Path, manager: FakeManager | None = None) -> None:
        self.folder = folder
        self.manager = manager or FakeManager()
        self.address = ""
        self.sidecars: dict[str, Process] = {}

    async def __aenter__(self) -> Cluster:
        self.address = await self.manager.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        for sidecar in self.sidecars.values():
            if sidecar.process is not None:
                await sidecar.end()
        await self.manager.stop()

    def make(self, name: str, **changes: Any) -> Process:
        folder = self.folder / name
        folder.mkdir(mode=0o755)  # whatever the umask is: clients refuse a socket where others can write
        settings = SidecarSettings(
            worker_id=name,
            host="127.0.0.1",
            data_dir=folder / "data",
            socket=folder / "s",
            manager=self.address,
            **{"listen": "127.0.0.1:0", "reserve_bytes": 0, "reflection": False, **changes},
        )
        self.sidecars[name] = Process(settings)
        return self.sidecars[name]

    async def start(self, *names: str, **changes: Any) -> list[Process]:
        processes = [self.make(name, **changes) for name in names]
        await asyncio.gather(*(process.start() for process in processes))
        return processes
