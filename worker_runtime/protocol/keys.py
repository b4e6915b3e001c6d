"""Lookup keys of the cores of this package, and when two files are the same."""

from __future__ import annotations

from typing import NamedTuple

from rhino_core.ids import FileEntry, Lane, StoreId, Worker, parse_name

Incarnation = tuple[str, str]  # a worker's id and the incarnation of its store


def incarnation_of(worker: Worker) -> Incarnation:
    """A new incarnation of a worker has lost the files of the old one."""
    return worker.worker_id, worker.incarnation


class FileKey(NamedTuple):
    store: StoreId
    name: str


def key_of(entry: FileEntry) -> FileKey:
    return FileKey(entry.store, entry.name)


def same_bytes(one: FileEntry, other: FileEntry) -> bool:
    return (one.crc32c, one.size_bytes) == (other.crc32c, other.size_bytes)


def lane_of(name: str) -> Lane:
    return parse_name(name).lane
