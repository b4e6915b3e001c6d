"""Parts of the tests of certificates that other tests use as well."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from rhino.client import connection
from rhino_core.rpc.channel import aio_channel
from rhino_core.security.certificates import Authority
from rhino_core.security.choice import client_transport
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role
from rhino_core.security.transport import THE_MANAGER
from rhino_pb import common_pb2, handover_pb2_grpc
from rhino_pb import handover_pb2 as pb
from tests.handover_manager.cluster import END_OF_STREAM
from tests.worker_runtime.cluster import Cluster, Process
from tests.worker_runtime.support.with_manager import manager, settings_of

VALID = dt.timedelta(hours=1)


AUDIT_LOG = "audit.log"


class Folders:
    """The certificate folders of a cluster's processes, below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.valid = VALID
        self._made: dict[str, Role] = {}
        self.renew(Authority.create("c"))

    def of(self, role: Role, name: str) -> str:
        self._made[name] = role
        self._write(name)
        return str(self._root / name)

    def renew(self, authority: Authority) -> None:
        """Writes new certificates of this authority into all folders. Others are not trusted any more."""
        self.authority = authority
        for name in self._made:
            self._write(name)

    def _write(self, name: str) -> None:
        write_folder(self._root / name, self.authority.issue(Identity("c", self._made[name], name), self.valid))


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "tls")


@asynccontextmanager
async def secure_cluster(folders: Folders, tmp_path: Path, *names: str) -> AsyncIterator[tuple[str, list[Process]]]:
    """The manager's address, and sidecars with these names. This process is an operator."""
    settings = replace(
        settings_of(tmp_path), tls_dir=folders.of(Role.MANAGER, "manager"), audit_log=str(tmp_path / AUDIT_LOG)
    )
    connection.use(client_transport(folders.of(Role.OPERATOR, "alice"), ""))
    try:
        async with asyncio.timeout(200), Cluster(tmp_path) as cluster, manager(settings) as address:
            cluster.address = address
            made = [
                cluster.make(
                    name, tls_dir=folders.of(Role.WORKER, name), audit_log=str(tmp_path / f"{name}-{AUDIT_LOG}")
                )
                for name in names
            ]
            await asyncio.gather(*(process.start() for process in made))
            yield address, made
    finally:
        connection.use(None)


@asynccontextmanager
async def running_query(address: str, folders: Folders) -> AsyncIterator[None]:
    """The driver `etl` runs the query `q` of the job. At the end it stops it."""
    transport = client_transport(folders.of(Role.DRIVER, "etl"), "")
    async with aio_channel(address, transport, THE_MANAGER) as channel:
        session: Any = cast("Any", handover_pb2_grpc.HandoverManagerStub(channel)).DriverSession()
        hello = pb.DriverHello(application_id="app", host="h", settings=common_pb2.JobSettings())
        await session.write(pb.DriverEvent(hello=hello))
        groups = [pb.TaskGroup(task_group=0, operators=[0], partitions=4)]
        started = pb.QueryStarted(job="job", run_id="r", name="q", task_groups=groups)
        await session.write(pb.DriverEvent(query_started=started))
        while (await session.read()).WhichOneof("command") != "desired":
            pass
        yield
        await session.write(pb.DriverEvent(query_ended=pb.QueryEnded(job="job", run_id="r")))
        await session.done_writing()
        while await session.read() is not END_OF_STREAM:
            pass
