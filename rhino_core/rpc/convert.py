"""Converts between the vocabulary (`rhino_core.ids`) and protobuf messages: one pair of functions per type.

The gate (rhino_core/rpc/gate.py) has already checked the messages, so nothing is checked here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from rhino_core import ids
from rhino_pb import common_pb2 as pb

_KIND_TO_PB = {
    ids.FileKind.CHANGELOG: pb.FILE_KIND_CHANGELOG,
    ids.FileKind.SNAPSHOT: pb.FILE_KIND_SNAPSHOT,
    ids.FileKind.SST: pb.FILE_KIND_SST,
    ids.FileKind.LOG: pb.FILE_KIND_LOG,
}


_DISK_TO_PB = {
    ids.DiskState.OK: pb.DISK_STATE_OK,
    ids.DiskState.FULL: pb.DISK_STATE_FULL,
    ids.DiskState.FAILING: pb.DISK_STATE_FAILING,
}
_DISK_OF = {value: key for key, value in _DISK_TO_PB.items()}


def disk_to_pb(state: ids.DiskState) -> pb.DiskState.ValueType:
    return _DISK_TO_PB[state]


def disk_of(value: pb.DiskState.ValueType) -> ids.DiskState:
    """Unset and unknown states count as OK."""
    return _DISK_OF.get(value, ids.DiskState.OK)


def store_to_pb(store: ids.StoreId) -> pb.StoreId:
    return pb.StoreId(job=store.job, operator=store.operator, partition=store.partition, store=store.store)


def store_of(message: pb.StoreId) -> ids.StoreId:
    return ids.StoreId(message.job, message.operator, message.partition, message.store)


def group_to_pb(group: ids.GroupId) -> pb.GroupId:
    return pb.GroupId(job=group.job, operator=group.operator, partition=group.partition)


def group_of(message: pb.GroupId) -> ids.GroupId:
    return ids.GroupId(message.job, message.operator, message.partition)


def version_to_pb(version: ids.Version) -> pb.Version:
    return pb.Version(version=version.version, checkpoint_id=version.checkpoint_id)


def version_of(message: pb.Version) -> ids.Version:
    return ids.Version(message.version, message.checkpoint_id)


def versions_of(messages: Sequence[pb.Version]) -> list[ids.Version]:
    """`version_of` for a whole lineage. For speed it copies the messages to a list and bypasses NamedTuple's
    constructor."""
    new = tuple.__new__
    return [new(ids.Version, (message.version, message.checkpoint_id)) for message in messages[:]]


def _versions_to_pb(versions: Iterable[ids.Version]) -> Any:
    """Returns dictionaries for a message constructor. It reads them faster than it copies messages."""
    return [{"version": number, "checkpoint_id": checkpoint_id} for number, checkpoint_id in versions]


def store_version_to_pb(value: ids.StoreVersion) -> pb.StoreVersion:
    return pb.StoreVersion(store=store_to_pb(value.store), version=version_to_pb(value.version))


def store_version_of(message: pb.StoreVersion) -> ids.StoreVersion:
    return ids.StoreVersion(store_of(message.store), version_of(message.version))


def epoch_to_pb(epoch: ids.Epoch) -> pb.Epoch:
    return pb.Epoch(generation=epoch.generation, counter=epoch.counter)


def epoch_of(message: pb.Epoch) -> ids.Epoch:
    return ids.Epoch(message.generation, message.counter)


def worker_to_pb(worker: ids.Worker) -> pb.Worker:
    return pb.Worker(
        worker_id=worker.worker_id,
        incarnation=worker.incarnation,
        host=worker.host,
        peer_address=worker.peer_address,
    )


def labelled_worker_to_pb(worker: ids.Worker) -> pb.Worker:
    """With zone and rack: only the manager needs them."""
    message = worker_to_pb(worker)
    message.zone, message.rack = worker.zone, worker.rack
    return message


def worker_of(message: pb.Worker) -> ids.Worker:
    return _worker(
        message.worker_id, message.incarnation, message.host, message.peer_address, message.zone, message.rack
    )


_worker = functools.lru_cache(maxsize=1024)(ids.Worker)  # cached, because each acknowledgement names a worker


def settings_to_pb(settings: ids.JobSettings) -> pb.JobSettings:
    degraded = settings.below_min_copies is ids.BelowMinCopies.DEGRADED
    synced = settings.durability is ids.Durability.SYNCED
    return pb.JobSettings(
        replication_factor=settings.replication_factor,
        replication_factor_set=True,
        min_copies=settings.min_copies or 0,
        below_min_copies=pb.BELOW_MIN_COPIES_DEGRADED if degraded else pb.BELOW_MIN_COPIES_BLOCK,
        durability=pb.DURABILITY_SYNCED if synced else pb.DURABILITY_REPLICATED,
    )


def settings_of(message: pb.JobSettings) -> ids.JobSettings:
    """Uses defaults for unset fields. Raises InvalidRequestError for values out of range.

    For a value known only to a newer version, the stronger guarantee is assumed.
    """
    block = message.below_min_copies not in (pb.BELOW_MIN_COPIES_UNSPECIFIED, pb.BELOW_MIN_COPIES_DEGRADED)
    synced = message.durability not in (pb.DURABILITY_UNSPECIFIED, pb.DURABILITY_REPLICATED)
    return ids.JobSettings(
        replication_factor=message.replication_factor if message.replication_factor_set else 1,
        min_copies=message.min_copies or None,
        below_min_copies=ids.BelowMinCopies.BLOCK if block else ids.BelowMinCopies.DEGRADED,
        durability=ids.Durability.SYNCED if synced else ids.Durability.REPLICATED,
    )


def replica_group_to_pb(group: ids.ReplicaGroup) -> pb.ReplicaGroup:
    return pb.ReplicaGroup(
        group=group_to_pb(group.group),
        epoch=epoch_to_pb(group.epoch),
        members=[pb.Member(worker=_shared_worker(m.worker), whole=m.whole) for m in group.members],
        min_copies=group.settings.copies,
        required_copies=group.required_copies,
        settings=_shared_settings(group.settings),
    )


# There are many groups, and few workers and settings. A message copies what it is made of.
_shared_worker = functools.lru_cache(maxsize=4096)(worker_to_pb)
_shared_settings = functools.lru_cache(maxsize=64)(settings_to_pb)


def replica_group_of(message: pb.ReplicaGroup) -> ids.ReplicaGroup:
    return ids.ReplicaGroup(
        group=group_of(message.group),
        epoch=epoch_of(message.epoch),
        members=tuple(ids.Member(worker_of(m.worker), m.whole) for m in message.members),
        required_copies=message.required_copies,
        settings=settings_of(message.settings),
    )


def file_to_pb(entry: ids.FileEntry) -> pb.FileEntry:
    version = entry.version
    return pb.FileEntry(
        store=store_to_pb(entry.store),
        name=entry.name,
        kind=_KIND_TO_PB[entry.kind],
        version=version_to_pb(version) if version else None,
        size_bytes=entry.size_bytes,
        crc32c=entry.crc32c,
        lineage=_versions_to_pb(entry.lineage),
        references=list(entry.references),
        written_by=entry.written_by,
        same_as=entry.same_as,
        branch_of=entry.branch_of,
        branch_operator=entry.branch_operator,
    )


def file_of(message: pb.FileEntry) -> ids.FileEntry:
    """Ignores the fields kind and version, because the name determines both."""
    return ids.FileEntry(
        store=store_of(message.store),
        name=message.name,
        size_bytes=message.size_bytes,
        crc32c=message.crc32c,
        lineage=tuple(versions_of(message.lineage)),
        references=tuple(message.references),
        written_by=message.written_by,
        same_as=message.same_as,
        branch_of=message.branch_of,
        branch_operator=message.branch_operator if message.HasField("branch_operator") else None,
    )
