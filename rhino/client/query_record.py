"""Calls about the manager's record of one query: forgotten, moved or owned; and of a lost worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rhino.client.connection import manager_channel
from rhino_core import ids
from rhino_core.rpc import convert
from rhino_core.rpc.channel import call_sync
from rhino_model.codec import decode
from rhino_pb import common_pb2, handover_pb2, handover_pb2_grpc

CALL_TIMEOUT_S = 15.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Files and bytes of a job on one worker, by the worker's last report."""

    worker_id: str
    live: bool
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ForgottenJob:
    """`left_s`: seconds until the state is deleted. Until then it can be taken back. 0: it is deleted at once."""

    job: str
    groups: int
    workers: tuple[JobUsage, ...]
    left_s: float


@dataclass(frozen=True, slots=True)
class ForgottenWorker:
    """`only_member`: groups with the worker as only member. Their state is lost with it."""

    worker_id: str
    groups: int
    only_member: tuple[ids.GroupId, ...]
    bytes: int


def forget_worker(manager: str, worker_id: str, *, dry_run: bool) -> ForgottenWorker:
    """Forgets a worker. Raises PreconditionError while the worker is live, UnknownError, UnavailableError."""
    request = common_pb2.ForgetWorkerRequest(worker_id=worker_id, dry_run=dry_run)
    reply = _ask(manager, lambda stub: stub.ForgetWorker(request, timeout=CALL_TIMEOUT_S))
    only = tuple(convert.group_of(group) for group in reply.only_member)
    return ForgottenWorker(worker_id, reply.groups, only, reply.bytes)


@dataclass(frozen=True, slots=True)
class MovedCheckpoint:
    """`location`: the new location, as the manager has recorded it."""

    job: str
    location: str


def move_checkpoint(manager: str, job: str, location: str) -> MovedCheckpoint:
    """Records the new location of a job's checkpoint.

    Raises PreconditionError while a driver runs the job, UnknownError, InvalidRequestError, UnavailableError.
    """
    request = handover_pb2.MoveCheckpointRequest(job=job, location=location)
    return decode(MovedCheckpoint, _ask(manager, lambda stub: stub.MoveCheckpoint(request, timeout=CALL_TIMEOUT_S)))


@dataclass(frozen=True, slots=True)
class JobOwner:
    """`owner`: name in the certificate of the driver that may run the job. Empty: its next driver."""

    job: str
    owner: str


def set_owner(manager: str, job: str, owner: str) -> JobOwner:
    """Records the owner of a job. Raises UnknownError, UnavailableError."""
    request = handover_pb2.SetJobOwnerRequest(job=job, owner=owner)
    return decode(JobOwner, _ask(manager, lambda stub: stub.SetJobOwner(request, timeout=CALL_TIMEOUT_S)))


def _ask(manager: str, call: Callable[[handover_pb2_grpc.HandoverManagerStub], T]) -> T:
    with manager_channel(manager) as channel:
        stub = handover_pb2_grpc.HandoverManagerStub(channel)
        return call_sync(f"manager at {manager}", lambda: call(stub))
