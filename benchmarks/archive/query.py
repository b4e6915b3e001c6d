"""A query without Spark: its partitions commit to real sidecars, and its driver reports batches to a real manager."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from benchmarks.replication.commits import LINEAGE, Writer
from benchmarks.replication.sidecars import JOB, Client
from rhino_core.errors import UnavailableError
from rhino_core.ids import BelowMinCopies, JobSettings, StoreVersion, Version
from rhino_core.rpc.channel import CALL_S_MAX, aio_channel
from rhino_core.rpc.convert import settings_to_pb, store_version_to_pb
from rhino_core.version import PROTOCOL
from rhino_pb import archive_pb2, common_pb2, handover_pb2, handover_pb2_grpc

RUN, OPERATOR = "run-of-a-benchmark", 1  # the operator of a Writer's stores
COPIES = 2
CHECKPOINT_BYTES = 10_000  # of a commit log entry with 200 checkpoint ids
RETAINED = 20  # batches


class Partition(Writer):
    """Each snapshot has a new data file with as many bytes as the changelogs since the last one, and all former ones.

    `table`: path of that file. `written_bytes`: of changelogs and data files so far.
    """

    def __init__(self, client: Client, number: int, changelog_bytes: int, table: Path) -> None:
        super().__init__(client, number, os.urandom(changelog_bytes))
        self._table = table
        self._names: list[str] = []
        self.written_bytes = 0

    async def commit(self) -> float:
        self.written_bytes += len(self._content)
        return await super().commit()

    async def _snapshot(self) -> Version:
        self._table.unlink(missing_ok=True)  # the sidecar has a link to the former one
        self._table.write_bytes(data := os.urandom(LINEAGE * len(self._content)))
        self.written_bytes += len(data)
        return await self._client.snapshot(self._store, [self._table], self._lineage[-1], self._names)


class Driver:
    """One session with the manager. It answers when an archive asks for the files of the checkpoint."""

    def __init__(self, manager: str, hosts: Sequence[str], partitions: int) -> None:
        """`hosts`: of worker-0, worker-1, ..."""
        self._manager = manager
        self._events: asyncio.Queue[handover_pb2.DriverEvent] = asyncio.Queue()
        self._logged: list[Sequence[StoreVersion]] = []  # by batch
        hello = handover_pb2.DriverHello(
            application_id="benchmark",
            spark_version="4.2.0",
            settings=settings_to_pb(JobSettings(COPIES - 1, COPIES, BelowMinCopies.BLOCK)),
            host="127.0.0.1",
            protocol=PROTOCOL,
        )
        self._send(hello=hello)
        for number, host in enumerate(hosts):
            executor = {"executor_id": str(number), "host": host, "worker_id": f"worker-{number}"}
            self._send(executor_changed=handover_pb2.ExecutorChanged(**executor))
        group = handover_pb2.TaskGroup(task_group=OPERATOR, operators=[OPERATOR], partitions=partitions)
        started = {"job": JOB, "run_id": RUN, "name": JOB, "location": "file:/benchmark"}
        self._send(query_started=handover_pb2.QueryStarted(**started, task_groups=[group]))

    def _send(self, **event: object) -> None:
        self._events.put_nowait(handover_pb2.DriverEvent(**event))

    async def run(self) -> None:
        """Until cancelled. Raises UnavailableError when the session ends."""
        channel = aio_channel(self._manager)
        try:
            stub = handover_pb2_grpc.HandoverManagerStub(channel)
            async for command in stub.DriverSession(self._sent(), timeout=CALL_S_MAX):
                if command.HasField("refused"):
                    raise UnavailableError(command.refused.reason)
                if command.HasField("checkpoint"):
                    batch = command.checkpoint.batch_id
                    file = archive_pb2.CheckpointFile(path=f"commits/{batch}", data=os.urandom(CHECKPOINT_BYTES))
                    self._send(checkpoint=handover_pb2.CheckpointRead(job=JOB, batch_id=batch, files=[file]))
        finally:
            await channel.close(None)
        raise UnavailableError("the manager has ended the session of the driver")

    async def _sent(self) -> AsyncIterator[handover_pb2.DriverEvent]:
        while True:
            yield await self._events.get()

    def log(self, versions: Sequence[StoreVersion]) -> int:
        """Reports the next batch. Returns its id."""
        batch = len(self._logged)
        self._logged.append(versions)
        floors = [common_pb2.Floor(version=store_version_to_pb(one)) for one in self._logged[max(0, batch - RETAINED)]]
        named = [store_version_to_pb(one) for one in versions]
        self._send(
            batch_logged=handover_pb2.BatchLogged(job=JOB, run_id=RUN, batch_id=batch, versions=named, floors=floors)
        )
        return batch
