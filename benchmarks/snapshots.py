"""Snapshots of one partition's state as files on disk: with Rhino on all workers, else in the query checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worker_runtime.storage.files import zip_references

COMPACTED_BYTES = 50_000_000  # new in a snapshot: ten small batches, and a compaction of a small level


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`files`: sizes in bytes of the data files that it names, by name."""

    version: int
    files: dict[str, int]


def whole_snapshots(stores: Sequence[Path], oldest: int, copies: int) -> list[Snapshot]:
    """Those of version `oldest` or newer of which each file is in so many of `stores`, in order.

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


def compacted(stores: Sequence[Path], oldest: int, copies: int) -> bool:
    """The newest of two or more whole snapshots of version `oldest` or newer has little that the one before had not."""
    *_, before, newest = (None, None, *whole_snapshots(stores, oldest, copies))
    if before is None or newest is None:
        return False
    return sum(size for name, size in newest.files.items() if name not in before.files) <= COMPACTED_BYTES


def _version(zip_: Path) -> int:
    return int(zip_.name.split("_")[0])


def _places(stores: Sequence[Path], name: Path) -> list[Path]:
    return [path for store in stores if (path := store / name).exists()]
