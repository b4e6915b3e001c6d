"""Snapshots of one partition's state as files on disk: with Rhino on all workers, else in the query checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from worker_runtime.storage.arriving.zips import zip_references

COMPACTION_SHARE = 0.05  # so much of a snapshot is new when RocksDB has merged flushed tables into all of a level
FLUSHES = 4  # that RocksDB merges at a time
SMALL_BYTES = 20_000_000  # a state whose compactions nobody notices


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`files`: sizes in bytes of its data files, by name."""

    version: int
    files: dict[str, int]


def whole_snapshots(stores: Sequence[Path], oldest: int, copies: int) -> list[Snapshot]:
    """The snapshots of version `oldest` or newer with each file in `copies` of `stores`, in order.

    `stores`: the folders of one partition on all workers.
    """
    zips = {
        path.relative_to(store): path
        for store in stores
        for path in store.rglob("*.zip")
        if path.name[0].isdigit() and _version(path) >= oldest
    }
    found: list[Snapshot] = []
    for name, path in zips.items():
        try:
            places = {file: _places(stores, name.parent / file) for file in (name.name, *zip_references(path))}
        except FileNotFoundError:
            continue  # collected meanwhile
        if all(len(paths) >= copies for paths in places.values()):
            files = {file: paths[0].stat().st_size for file, paths in places.items() if file != name.name}
            found.append(Snapshot(_version(path), files))
    return sorted(found, key=lambda snapshot: snapshot.version)


def between_compactions(found: Sequence[Snapshot]) -> bool:
    """A compaction lies behind, whole, and the next one is two snapshots or more away.

    RocksDB merges four flushed tables into a level at a time. With tables of random keys a level may be written anew
    with every fourth snapshot: the one after the compaction has it, and the third after this one begins the next
    compaction. Four without one show an empty level. `found`: of one partition, in order, whole, also those collected
    meanwhile.
    """
    if found and sum(found[-1].files.values()) <= SMALL_BYTES:
        return True
    changes = [_compacted(before, newest) for before, newest in pairwise(found)]
    return any(changes[-2:]) or (len(changes) >= FLUSHES and not any(changes[-FLUSHES:]))


def _compacted(before: Snapshot, newest: Snapshot) -> bool:
    new = sum(size for name, size in newest.files.items() if name not in before.files)
    return new > COMPACTION_SHARE * sum(newest.files.values())


def _version(zip_: Path) -> int:
    return int(zip_.name.split("_")[0])


def _places(stores: Sequence[Path], name: Path) -> list[Path]:
    return [path for store in stores if (path := store / name).exists()]
