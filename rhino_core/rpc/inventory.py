"""Inventories: the file entries of a group. The changelogs of a branch share one copy of a long lineage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rhino_core.errors import RemoteProtocolError
from rhino_core.ids import FileEntry, FileKind, StoreId, Version
from rhino_core.lineage import LONG, Lineage
from rhino_core.rpc.convert import file_of, file_to_pb, version_to_pb
from rhino_pb import common_pb2 as pb

_Key = tuple[StoreId, Version]


def files_to_pb(entries: Sequence[FileEntry]) -> list[pb.FileEntry]:
    """Keeps the order of the entries."""
    lineages = {key: entry.lineage for entry in entries if (key := _key(entry)) is not None}
    return [_file_to_pb(entry, lineages) for entry in entries]


def files_of(messages: Iterable[pb.FileEntry]) -> tuple[FileEntry, ...]:
    """Keeps the order. Raises RemoteProtocolError for a lineage without its beginning."""
    messages = tuple(messages)
    entries = [file_of(message) for message in messages]
    before = [message.lineage_before for message in messages]
    lineages: dict[_Key, Sequence[Version]] = {}
    rising = sorted(
        (key, at) for at, entry in enumerate(entries) if (key := _key(entry)) is not None
    )  # by version number, so that a predecessor comes before its successors
    for key, at in rising:
        entry = entries[at]
        if before[at]:
            entry = entries[at] = replace(entry, lineage=_joined(entry, before[at], lineages))
        lineages[key] = entry.lineage
    return tuple(entries)


def _key(entry: FileEntry) -> _Key | None:
    version = entry.version
    return (entry.store, version) if version is not None and entry.kind is FileKind.CHANGELOG else None


def _file_to_pb(entry: FileEntry, lineages: dict[_Key, Sequence[Version]]) -> pb.FileEntry:
    lineage = entry.lineage
    if len(lineage) >= LONG:
        former = lineages.get((entry.store, lineage[-1]))
        if former is not None and Lineage.of(former).is_continued_by(lineage):
            message = file_to_pb(replace(entry, lineage=()))
            message.lineage.append(version_to_pb(lineage[-1]))
            message.lineage_before = len(lineage) - 1
            return message
    return file_to_pb(entry)


def _joined(entry: FileEntry, before: int, lineages: dict[_Key, Sequence[Version]]) -> Sequence[Version]:
    first = entry.lineage[0] if entry.lineage else None
    former = lineages.get((entry.store, first)) if first is not None else None
    if former is None or len(former) < before or len(entry.lineage) != 1:
        raise RemoteProtocolError(f"{entry.store}/{entry.name}: the beginning of its lineage is not in the inventory")
    return Lineage.of(former).then(entry.lineage[0], before + 1)
