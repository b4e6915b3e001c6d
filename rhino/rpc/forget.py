"""Calls that make the managers forget a job or a worker."""

from __future__ import annotations

from dataclasses import dataclass

from rhino import ids
from rhino.rpc import convert
from rhino.rpc.channel import call_sync, sync_channel
from rhino_pb import common_pb2, handover_pb2_grpc, replication_pb2, replication_pb2_grpc

CALL_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What one worker stored of a job, as it said last."""

    worker_id: str
    live: bool
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ForgottenJob:
    job: str
    groups: int
    workers: tuple[JobUsage, ...]


@dataclass(frozen=True, slots=True)
class ForgottenWorker:
    """`only_member`: groups whose state is given up with the worker, for they have no other member."""

    worker_id: str
    groups: int
    only_member: tuple[ids.GroupId, ...]
    bytes: int


def forget_job(manager: str, job: str, *, dry_run: bool) -> ForgottenJob:
    """Raises PreconditionError while the job may be running, UnknownError, UnavailableError."""
    request = common_pb2.ForgetJobRequest(job=job, dry_run=dry_run)
    with sync_channel(manager) as channel:
        stub = handover_pb2_grpc.HandoverManagerStub(channel)
        reply = call_sync(f"manager at {manager}", lambda: stub.ForgetJob(request, timeout=CALL_TIMEOUT_S))
    workers = tuple(JobUsage(usage.worker_id, usage.live, usage.files, usage.bytes) for usage in reply.workers)
    return ForgottenJob(reply.job, reply.groups, workers)


def forget_worker(manager: str, worker_id: str, *, dry_run: bool) -> ForgottenWorker:
    """Raises PreconditionError while the worker is live, UnknownError, UnavailableError."""
    request = replication_pb2.ForgetWorkerRequest(worker_id=worker_id, dry_run=dry_run)
    with sync_channel(manager) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        reply = call_sync(f"manager at {manager}", lambda: stub.ForgetWorker(request, timeout=CALL_TIMEOUT_S))
    only = tuple(convert.group_of(group) for group in reply.only_member)
    return ForgottenWorker(worker_id, reply.groups, only, reply.bytes)
