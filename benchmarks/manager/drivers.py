"""Simulated Spark drivers: one query each, with batches at a fixed interval."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import grpc
import grpc.aio

from benchmarks.manager.shape import (
    FIRST_VERSION,
    OPERATORS,
    RETAINED,
    SETTINGS,
    Shape,
    job_of,
    name_of,
    run_of,
    version_of,
)
from benchmarks.manager.sidecars import Sidecar
from rhino_core import retry
from rhino_core.ids import GroupId
from rhino_core.rpc.channel import CALL_S_MAX, aio_channel
from rhino_core.rpc.convert import settings_to_pb, store_version_to_pb
from rhino_core.security.transport import Transport
from rhino_core.version import PROTOCOL
from rhino_pb import common_pb2, handover_pb2, handover_pb2_grpc

TASK_S = 0.2


class Driver:
    """The driver of query `number`. Its executors are on the query's workers. It tells these of each batch."""

    def __init__(
        self, number: int, shape: Shape, sidecars: Mapping[str, Sidecar], address: str, transport: Transport
    ) -> None:
        self.connected = False  # the manager has accepted the session
        self._welcomed = asyncio.Event()
        self.batches = 0
        self._number = number
        self._shape = shape
        self._sidecars = sidecars
        self._channel = aio_channel(address, transport)
        self._version = FIRST_VERSION
        job = job_of(number)
        self._groups = [GroupId(job, o, partition) for partition in range(shape.partitions) for o in OPERATORS]

    async def run(self, batch_s: float) -> None:
        """Until cancelled. `batch_s`: from one batch to the next; 0: no batches."""
        stub = handover_pb2_grpc.HandoverManagerStub(self._channel)
        pauses = retry.MANAGER.pauses()
        try:
            while True:
                with contextlib.suppress(grpc.RpcError):
                    async for _ in stub.DriverSession(self._events(batch_s), timeout=CALL_S_MAX):
                        self.connected = True
                        self._welcomed.set()
                        pauses.reset()
                self.connected = False
                self._welcomed.clear()
                await pauses.sleep()
        finally:
            await self._channel.close(None)

    async def _events(self, batch_s: float) -> AsyncIterator[handover_pb2.DriverEvent]:
        hello = handover_pb2.DriverHello(
            application_id=f"application-{self._number}",
            spark_version="4.2.0",
            settings=settings_to_pb(SETTINGS),
            host="127.0.0.1",
            protocol=PROTOCOL,
        )
        yield handover_pb2.DriverEvent(hello=hello)
        await self._welcomed.wait()
        for place, worker in enumerate(self._shape.workers_of(self._number)):
            host = self._shape.worker(worker).host
            executor = handover_pb2.ExecutorChanged(executor_id=str(place), host=host, worker_id=name_of(worker))
            yield handover_pb2.DriverEvent(executor_changed=executor)
        yield handover_pb2.DriverEvent(query_started=self._started())
        await asyncio.sleep(batch_s * self._number / self._shape.jobs)  # not all queries at the same time
        while batch_s:
            yield handover_pb2.DriverEvent(batch_logged=self._batch(batch_s))
            await asyncio.sleep(batch_s)
        await asyncio.Event().wait()

    def _started(self) -> handover_pb2.QueryStarted:
        return handover_pb2.QueryStarted(
            job=job_of(self._number),
            run_id=run_of(self._number),
            name=f"query-{self._number}",
            task_groups=[
                handover_pb2.TaskGroup(task_group=OPERATORS[0], operators=OPERATORS, partitions=self._shape.partitions)
            ],
            location=f"hdfs://namenode/checkpoints/query-{self._number}",
        )

    def _batch(self, batch_s: float) -> handover_pb2.BatchLogged:
        """Commits a batch on the workers of the query, and reports it as the driver does."""
        self._version += 1
        self.batches += 1
        version = self._version
        for worker in self._shape.workers_of(self._number):
            if (sidecar := self._sidecars.get(name_of(worker))) is not None:
                sidecar.advance(self._groups, version)
        floor = version - RETAINED
        return handover_pb2.BatchLogged(
            job=job_of(self._number),
            run_id=run_of(self._number),
            batch_id=version - 1,
            versions=[store_version_to_pb(version_of(group, version)) for group in self._groups],
            floors=[common_pb2.Floor(version=store_version_to_pb(version_of(g, floor))) for g in self._groups],
            work=[
                handover_pb2.NodeWork(task_group=OPERATORS[0], partition=p, rows=10_000 + p, task_s=TASK_S)
                for p in range(self._shape.partitions)
            ],
            input_rows=1_000_000,
            batch_s=min(batch_s, 5.0),
            trigger_s=batch_s,
        )
