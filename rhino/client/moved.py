"""The call to inform the manager about the new location of a query checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from rhino.client.connection import manager_channel
from rhino_core.rpc.channel import call_sync
from rhino_model.codec import decode
from rhino_pb import handover_pb2, handover_pb2_grpc

CALL_TIMEOUT_S = 15.0


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
    with manager_channel(manager) as channel:
        stub = handover_pb2_grpc.HandoverManagerStub(channel)
        reply = call_sync(f"manager at {manager}", lambda: stub.MoveCheckpoint(request, timeout=CALL_TIMEOUT_S))
    return decode(MovedCheckpoint, reply)
