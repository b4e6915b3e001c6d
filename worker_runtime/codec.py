"""Converts between the core's vocabulary and the messages of sidecar.proto and peer.proto."""

from __future__ import annotations

from rhino_core.errors import InvalidRequestError, RemoteProtocolError
from rhino_core.ids import Lane, Source
from rhino_core.rpc.convert import (
    epoch_of,
    epoch_to_pb,
    group_to_pb,
    store_of,
    store_to_pb,
    store_version_to_pb,
    worker_of,
    worker_to_pb,
)
from rhino_pb import common_pb2, peer_pb2, replication_pb2, sidecar_pb2
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.view import Lag
from worker_runtime.protocol.copies.preparing import PrepareState
from worker_runtime.statistics import CommitRecord, PrepareRecord
from worker_runtime.storage.keeping.scrub_round import ScrubRound

LANE_TO_PB = {Lane.COMMIT: peer_pb2.LANE_COMMIT, Lane.BULK: peer_pb2.LANE_BULK}
_LANE_OF = {value: key for key, value in LANE_TO_PB.items()}
_REFUSAL_TO_PB = {
    ev.Refusal.STALE_EPOCH: peer_pb2.REFUSAL_REASON_STALE_EPOCH,
    ev.Refusal.CHECKSUM: peer_pb2.REFUSAL_REASON_CHECKSUM,
    ev.Refusal.NAME_CONFLICT: peer_pb2.REFUSAL_REASON_NAME_CONFLICT,
    ev.Refusal.STORAGE: peer_pb2.REFUSAL_REASON_STORAGE,
    ev.Refusal.NOT_A_WRITER: peer_pb2.REFUSAL_REASON_NOT_A_WRITER,
}
_REFUSAL_OF = {value: key for key, value in _REFUSAL_TO_PB.items()}
STATE_TO_PB = {
    PrepareState.READY: sidecar_pb2.PREPARE_STATE_READY,
    PrepareState.UNAVAILABLE: sidecar_pb2.PREPARE_STATE_UNAVAILABLE,
    PrepareState.LOST: sidecar_pb2.PREPARE_STATE_LOST,
}
_SOURCE_TO_PB = {
    Source.EMPTY: sidecar_pb2.SOURCE_EMPTY,
    Source.LOCAL: sidecar_pb2.SOURCE_LOCAL,
    Source.REPLICA: sidecar_pb2.SOURCE_REPLICA,
    Source.REMOTE: sidecar_pb2.SOURCE_REMOTE,
}
KIND_TO_PB = {
    "changelog": common_pb2.FILE_KIND_CHANGELOG,
    "snapshot": common_pb2.FILE_KIND_SNAPSHOT,
    "sst": common_pb2.FILE_KIND_SST,
    "log": common_pb2.FILE_KIND_LOG,
}


def lag_to_pb(lag: Lag) -> replication_pb2.Lag:
    return replication_pb2.Lag(
        group=group_to_pb(lag.group), worker_id=lag.to, lag_bytes=lag.lag_bytes, oldest_s=lag.oldest_s
    )


def lane_of(value: peer_pb2.Lane.ValueType) -> Lane:
    """Raises InvalidRequestError for an unknown lane."""
    if value not in _LANE_OF:
        raise InvalidRequestError(f"lane {value} is unknown: LANE_COMMIT or LANE_BULK")
    return _LANE_OF[value]


def ack_to_pb(ack: ev.SendAck) -> peer_pb2.PushReply:
    return peer_pb2.PushReply(
        ack=peer_pb2.PushAck(
            store=store_to_pb(ack.store),
            name=ack.name,
            epoch=epoch_to_pb(ack.epoch),
            member=worker_to_pb(ack.member),
            holds=ack.holds,
        )
    )


def ack_of(sender: str, message: peer_pb2.PushAck) -> ev.AckReceived:
    return ev.AckReceived(
        sender,
        store_of(message.store),
        message.name,
        epoch_of(message.epoch),
        worker_of(message.member),
        message.holds,
    )


def refusal_to_pb(refusal: ev.SendRefusal) -> peer_pb2.PushReply:
    return peer_pb2.PushReply(
        refusal=peer_pb2.PushRefusal(
            store=store_to_pb(refusal.store),
            name=refusal.name,
            reason=_REFUSAL_TO_PB[refusal.reason],
            current_epoch=epoch_to_pb(refusal.current_epoch),
            message=refusal.message,
            member=worker_to_pb(refusal.member),
        )
    )


def refusal_of(sender: str, message: peer_pb2.PushRefusal) -> ev.RefusalReceived:
    """Raises RemoteProtocolError for an unknown reason."""
    if message.reason not in _REFUSAL_OF:
        raise RemoteProtocolError(f"refusal reason {message.reason} is unknown")
    return ev.RefusalReceived(
        sender,
        store_of(message.store),
        message.name,
        _REFUSAL_OF[message.reason],
        epoch_of(message.current_epoch),
        message.message,
        worker_of(message.member),
    )


def source_to_pb(source: Source | None) -> sidecar_pb2.Source.ValueType:
    return _SOURCE_TO_PB[source] if source else sidecar_pb2.SOURCE_UNSPECIFIED


def prepare_record_to_pb(record: PrepareRecord) -> sidecar_pb2.PrepareRecord:
    return sidecar_pb2.PrepareRecord(
        versions=[store_version_to_pb(version) for version in record.versions],
        state=STATE_TO_PB[record.state],
        source=source_to_pb(record.source),
        fetched_bytes=record.fetched_bytes,
        duration_ms=record.duration_ms,
        finished_ms=record.finished_ms,
        held_before=record.held_before,
    )


def commit_record_to_pb(record: CommitRecord) -> sidecar_pb2.CommitRecord:
    return sidecar_pb2.CommitRecord(
        version=store_version_to_pb(record.version),
        kind=KIND_TO_PB[record.kind.value],
        size_bytes=record.size_bytes,
        copies=record.copies,
        duration_ms=record.duration_ms,
        finished_ms=record.finished_ms,
    )


def scrub_to_pb(scrub: ScrubRound) -> common_pb2.ScrubStatus:
    return common_pb2.ScrubStatus(
        number=scrub.number,
        running=scrub.running,
        full_pace=scrub.full_pace,
        checked_bytes=scrub.checked_bytes,
        total_bytes=scrub.total_bytes,
        checked_files=scrub.checked_files,
        errors=scrub.errors,
        repaired=scrub.repaired,
        started_ms=scrub.started_ms,
        finished_ms=scrub.finished_ms,
    )
