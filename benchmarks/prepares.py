"""Time until a sidecar says that a replica can be opened: `Prepare` of the newest version, many times."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import uvloop

from benchmarks.stateful import QUERY_NAME, Running
from rhino.client.overview import fetch_overview
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_core.rpc import greeting
from rhino_core.rpc.channel import aio_channel
from rhino_core.rpc.convert import store_version_to_pb
from rhino_pb import common_pb2, sidecar_pb2, sidecar_pb2_grpc

CALL_TIMEOUT_S = 60.0


def replica_prepares(run: Running, rounds: int) -> list[float]:
    """Milliseconds of `rounds` calls for each virtual node at each worker with a whole replica of it."""
    overview = fetch_overview(run.cluster.manager)
    job = next(j.job for j in overview.jobs if j.name == QUERY_NAME)
    replicas = {
        (member.worker_id, group.group.partition)
        for group in overview.groups
        if group.group.job == job
        for member in group.members[1:]
        if member.whole
    }
    durations: list[float] = []
    for worker in run.cluster.workers:
        socket = Path(run.cluster.socket.replace("{host}", worker.host))
        partitions = sorted(p for w, p in replicas if w == worker.worker_id)
        for _ in range(rounds if partitions else 0):
            durations += uvloop.run(_prepare(socket, _newest(run, job, partitions)))
    return durations


def _newest(run: Running, job: str, partitions: list[int]) -> list[StoreVersion]:
    """The commit log's versions of the last batch."""
    batch = run.watch.committed()
    logged = json.loads((run.checkpoint / "commits" / str(batch)).read_text().splitlines()[-1])
    ids = logged["stateUniqueIds"]["0"]
    return [StoreVersion(StoreId(job, 0, p, "default"), Version(batch + 1, ids[p][0])) for p in partitions]


async def _prepare(socket: Path, versions: list[StoreVersion]) -> list[float]:
    channel = aio_channel(f"unix://{socket}")
    try:
        stub = sidecar_pb2_grpc.SidecarStub(channel)
        settings = common_pb2.JobSettings(replication_factor=1, replication_factor_set=True)
        attach = sidecar_pb2.AttachRequest(
            client="benchmark", settings=settings, commit_timeout_s=CALL_TIMEOUT_S, protocol_version="1"
        )
        attach.token = await asyncio.to_thread(greeting.ask, socket)
        session = await anext(aiter(stream := stub.Attach(attach, timeout=CALL_TIMEOUT_S)))
        durations = []
        for version in versions:
            request = sidecar_pb2.PrepareRequest(session_id=session.session_id, versions=[store_version_to_pb(version)])
            started = time.perf_counter()
            reply = await stub.Prepare(request, timeout=CALL_TIMEOUT_S)
            durations.append((time.perf_counter() - started) * 1000)
            assert (reply.state, reply.fetched_bytes) == (sidecar_pb2.PREPARE_STATE_READY, 0), reply
        stream.cancel()
        return durations
    finally:
        await channel.close(None)
        await asyncio.sleep(0)
