"""What a worker says about its scrub, and the calls that start and follow one."""

from __future__ import annotations

from dataclasses import dataclass

from rhino.rpc.channel import call_sync, sync_channel
from rhino_pb import common_pb2, peer_pb2, peer_pb2_grpc, sidecar_pb2

CALL_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ScrubView:
    """Fields as in ScrubStatus (proto/rhino_pb/common.proto). Times are milliseconds since the epoch."""

    number: int
    running: bool
    full_pace: bool
    checked_bytes: int
    total_bytes: int
    checked_files: int
    errors: int
    repaired: int
    started_ms: int
    finished_ms: int

    @property
    def missing(self) -> int:
        """Files that were damaged and are not back."""
        return self.errors - self.repaired


NO_SCRUB = ScrubView(0, False, False, 0, 0, 0, 0, 0, 0, 0)


def scrub_of(message: common_pb2.ScrubStatus) -> ScrubView:
    return ScrubView(
        number=message.number,
        running=message.running,
        full_pace=message.full_pace,
        checked_bytes=message.checked_bytes,
        total_bytes=message.total_bytes,
        checked_files=message.checked_files,
        errors=message.errors,
        repaired=message.repaired,
        started_ms=message.started_ms,
        finished_ms=message.finished_ms,
    )


def start_scrub(worker_id: str, peer_address: str) -> ScrubView:
    """Begins a scrub at full pace, or joins one. Raises UnavailableError and other RhinoErrors."""
    with sync_channel(peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        request = peer_pb2.StartScrubRequest()
        doing = f"scrub of worker {worker_id} at {peer_address}"
        return scrub_of(call_sync(doing, lambda: stub.StartScrub(request, timeout=CALL_TIMEOUT_S)))


def scrub_status(worker_id: str, peer_address: str) -> ScrubView:
    """As the worker itself says. Raises UnavailableError and other RhinoErrors."""
    with sync_channel(peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        doing = f"scrub of worker {worker_id} at {peer_address}"
        reply = call_sync(doing, lambda: stub.Describe(sidecar_pb2.DescribeRequest(), timeout=CALL_TIMEOUT_S))
        return scrub_of(reply.scrub)
