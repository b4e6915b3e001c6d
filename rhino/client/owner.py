"""The call to set the driver that may run a job."""

from __future__ import annotations

from dataclasses import dataclass

from rhino.client.connection import manager_channel
from rhino_core.rpc.channel import call_sync
from rhino_model.codec import decode
from rhino_pb import handover_pb2, handover_pb2_grpc

CALL_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class JobOwner:
    """`owner`: name in the certificate of the driver that may run the job. Empty: its next driver."""

    job: str
    owner: str


def set_owner(manager: str, job: str, owner: str) -> JobOwner:
    """Records the owner of a job. Raises UnknownError, UnavailableError."""
    request = handover_pb2.SetJobOwnerRequest(job=job, owner=owner)
    with manager_channel(manager) as channel:
        stub = handover_pb2_grpc.HandoverManagerStub(channel)
        reply = call_sync(f"manager at {manager}", lambda: stub.SetJobOwner(request, timeout=CALL_TIMEOUT_S))
    return decode(JobOwner, reply)
