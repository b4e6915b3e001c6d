"""Converts messages of the journal on witnesses from and to protobuf.

The gate (rhino_core/rpc/gate.py) has checked the messages, so nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rhino_core.witnesses.messages import (
    Append,
    Appended,
    Fetch,
    Fetched,
    Position,
    Promise,
    Promised,
    Record,
    Snapshot,
)
from rhino_pb import witness_pb2 as pb


def record_to_pb(record: Record) -> pb.JournalRecord:
    return pb.JournalRecord(
        generation=record.generation, values=_values_to_pb(record.values), witnesses=record.witnesses
    )


def record_of(message: pb.JournalRecord) -> Record:
    values = {one.key: None if one.deleted else one.value for one in message.values}
    return Record(message.generation, values, tuple(message.witnesses))


def _values_to_pb(values: Mapping[str, bytes | None]) -> Iterable[pb.JournalValue]:
    return (pb.JournalValue(key=key, value=value or b"", deleted=value is None) for key, value in values.items())


def position_to_pb(position: Position) -> pb.JournalPosition:
    return pb.JournalPosition(generation=position.generation, index=position.index)


def position_of(message: pb.JournalPosition) -> Position:
    return Position(message.generation, message.index)


def _snapshot_to_pb(snapshot: Snapshot | None) -> pb.JournalSnapshot | None:
    if snapshot is None:
        return None
    last, values = position_to_pb(snapshot.last), _values_to_pb(snapshot.values)
    return pb.JournalSnapshot(last=last, values=values, witnesses=snapshot.witnesses)


def _snapshot_of(message: pb.AppendRequest | pb.FetchRecordsReply) -> Snapshot | None:
    if not message.HasField("snapshot"):
        return None
    found = message.snapshot
    values = {one.key: one.value for one in found.values}
    return Snapshot(position_of(found.last), values, tuple(found.witnesses))


# ---------------------------------------------------------------- requests


def promise_to_pb(witness: str, request: Promise) -> pb.PromiseRequest:
    return pb.PromiseRequest(
        witness=witness, cluster=request.cluster, generation=request.generation, candidate=request.candidate
    )


def promise_of(message: pb.PromiseRequest) -> Promise:
    return Promise(message.cluster, message.generation, message.candidate)


def append_to_pb(witness: str, request: Append) -> pb.AppendRequest:
    return pb.AppendRequest(
        witness=witness,
        cluster=request.cluster,
        generation=request.generation,
        candidate=request.candidate,
        prev=position_to_pb(request.prev),
        records=map(record_to_pb, request.records),
        committed=request.committed,
        snapshot=_snapshot_to_pb(request.snapshot),
    )


def append_of(message: pb.AppendRequest) -> Append:
    return Append(
        cluster=message.cluster,
        generation=message.generation,
        candidate=message.candidate,
        prev=position_of(message.prev),
        records=tuple(map(record_of, message.records)),
        committed=message.committed,
        sent_at=0.0,  # of the leader's clock: it stays there
        snapshot=_snapshot_of(message),
    )


def fetch_to_pb(witness: str, request: Fetch) -> pb.FetchRecordsRequest:
    return pb.FetchRecordsRequest(
        witness=witness, cluster=request.cluster, after=request.after, generation=request.generation
    )


def fetch_of(message: pb.FetchRecordsRequest) -> Fetch:
    return Fetch(message.cluster, message.after, message.generation)


# ---------------------------------------------------------------- answers


def promised_to_pb(answer: Promised) -> pb.PromiseReply:
    return pb.PromiseReply(granted=answer.granted, promised=answer.promised, last=position_to_pb(answer.last))


def promised_of(witness: str, request: Promise, reply: pb.PromiseReply) -> Promised:
    return Promised(witness, request.generation, reply.granted, reply.promised, position_of(reply.last))


def appended_to_pb(answer: Appended) -> pb.AppendReply:
    return pb.AppendReply(promised=answer.promised, matched=answer.matched)


def appended_of(witness: str, request: Append, reply: pb.AppendReply) -> Appended:
    return Appended(witness, request.generation, reply.promised, reply.matched, request.sent_at)


def fetched_to_pb(answer: Fetched) -> pb.FetchRecordsReply:
    return pb.FetchRecordsReply(
        promised=answer.promised,
        activity=answer.activity,
        after=answer.after,
        records=map(record_to_pb, answer.records),
        committed=answer.committed,
        last=position_to_pb(answer.last),
        witnesses=answer.witnesses,
        snapshot=_snapshot_to_pb(answer.snapshot),
    )


def fetched_of(witness: str, request: Fetch, reply: pb.FetchRecordsReply) -> Fetched:
    return Fetched(
        witness=witness,
        generation=request.generation,
        promised=reply.promised,
        activity=reply.activity,
        after=reply.after,
        records=tuple(map(record_of, reply.records)),
        committed=reply.committed,
        last=position_of(reply.last),
        witnesses=tuple(reply.witnesses),
        snapshot=_snapshot_of(reply),
    )
