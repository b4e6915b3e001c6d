"""A sidecar's description of itself over its peer address: statistics, newest Prepare and Commit records."""

from __future__ import annotations

from dataclasses import dataclass

from rhino.client.connection import worker_channel
from rhino_core import ids
from rhino_core.rpc import convert
from rhino_core.rpc.channel import call_sync
from rhino_pb import common_pb2, peer_pb2_grpc, sidecar_pb2

_SOURCES = {
    sidecar_pb2.SOURCE_EMPTY: "empty",
    sidecar_pb2.SOURCE_LOCAL: "local",
    sidecar_pb2.SOURCE_REPLICA: "replica",
    sidecar_pb2.SOURCE_REMOTE: "remote",
}
_STATES = {
    sidecar_pb2.PREPARE_STATE_READY: "ready",
    sidecar_pb2.PREPARE_STATE_UNAVAILABLE: "unavailable",
    sidecar_pb2.PREPARE_STATE_LOST: "lost",
}


@dataclass(frozen=True, slots=True)
class PrepareFacts:
    worker_id: str
    versions: tuple[ids.StoreVersion, ...]
    state: str  # ready | unavailable | lost
    source: str  # empty | local | replica | remote
    fetched_bytes: int
    duration_ms: float
    finished_ms: int  # wall clock, milliseconds since the epoch
    held_before: bool


@dataclass(frozen=True, slots=True)
class CommitFacts:
    changelog: bool  # False: the zip of a snapshot, which the maintenance thread commits
    duration_ms: float


@dataclass(frozen=True, slots=True)
class SidecarFacts:
    worker_id: str
    resident_bytes_max: int
    replicated_bytes_in: int
    prepares: tuple[PrepareFacts, ...]  # oldest first
    commits: tuple[CommitFacts, ...]


def _prepare(worker_id: str, record: sidecar_pb2.PrepareRecord) -> PrepareFacts:
    return PrepareFacts(
        worker_id=worker_id,
        versions=tuple(convert.store_version_of(v) for v in record.versions),
        state=_STATES.get(record.state, "unspecified"),
        source=_SOURCES.get(record.source, "unspecified"),
        fetched_bytes=record.fetched_bytes,
        duration_ms=record.duration_ms,
        finished_ms=record.finished_ms,
        held_before=record.held_before,
    )


def describe(
    worker_id: str, peer_address: str, *, prepares_max: int, commits_max: int, timeout_s: float = 10.0
) -> SidecarFacts:
    """Asks the sidecar of a worker at "host:port". Raises UnavailableError if it does not answer within `timeout_s`."""
    request = sidecar_pb2.DescribeRequest(prepares_max=prepares_max, commits_max=commits_max)
    with worker_channel(worker_id, peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        reply = call_sync(f"sidecar at {peer_address}", lambda: stub.Describe(request, timeout=timeout_s))
    return SidecarFacts(
        worker_id=worker_id,
        resident_bytes_max=reply.resident_bytes_max,
        replicated_bytes_in=reply.replicated_bytes_in,
        prepares=tuple(_prepare(worker_id, p) for p in reply.prepares),
        commits=tuple(CommitFacts(c.kind == common_pb2.FILE_KIND_CHANGELOG, c.duration_ms) for c in reply.commits),
    )
