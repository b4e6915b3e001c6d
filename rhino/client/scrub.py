"""The scrub status of a worker, and the calls to start and follow a scrub."""

from __future__ import annotations

from dataclasses import dataclass

from rhino.client.connection import worker_channel
from rhino_core.rpc.channel import call_sync
from rhino_model.codec import decode
from rhino_pb import peer_pb2, peer_pb2_grpc, sidecar_pb2

CALL_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ScrubView:
    """Fields as in ScrubStatus (proto/rhino_pb/common.proto). Times are in milliseconds since the epoch."""

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
        """Number of damaged files not repaired yet."""
        return self.errors - self.repaired


NO_SCRUB = ScrubView(0, False, False, 0, 0, 0, 0, 0, 0, 0)


def start_scrub(worker_id: str, peer_address: str) -> ScrubView:
    """Starts a scrub at full pace, or joins a running one. Raises UnavailableError and other RhinoErrors."""
    with worker_channel(worker_id, peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        request = peer_pb2.StartScrubRequest()
        doing = f"scrub of worker {worker_id} at {peer_address}"
        return decode(ScrubView, call_sync(doing, lambda: stub.StartScrub(request, timeout=CALL_TIMEOUT_S)))


def scrub_status(worker_id: str, peer_address: str) -> ScrubView:
    """Asks the worker itself. Raises UnavailableError and other RhinoErrors."""
    with worker_channel(worker_id, peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        doing = f"scrub of worker {worker_id} at {peer_address}"
        reply = call_sync(doing, lambda: stub.Describe(sidecar_pb2.DescribeRequest(), timeout=CALL_TIMEOUT_S))
        return decode(ScrubView, reply.scrub)
