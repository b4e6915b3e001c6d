"""Lays out a snapshot as RocksDB expects it on disk, opens it read-only and reads it completely.

Spark's zip contains MANIFEST, CURRENT, OPTIONS, live logs and `metadata`. The JSON in `metadata` maps each data file to
its name in the database: SSTs beside the manifest, archived logs in `archive`.
"""

from __future__ import annotations

import errno
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocksdict import AccessType, Options, Rdict

from rhino_core.errors import IntegrityError
from rhino_core.rocksdb import scan
from worker_runtime.storage.arriving.zips import NOT_A_SNAPSHOT

DEFAULT = "default"  # column family
Link = Callable[[str, Path], None]  # (name in the store, target)


class UnprovenError(Exception):
    """Content that only Spark can read, such as values for its merge operator. No damage was found."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """`keys`: Spark's count of entries in all its column families; None if Spark did not count."""

    files: tuple[tuple[str, str, int], ...]  # name in the store, path in the database, bytes
    keys: int | None


def unzip(archive: Path, folder: Path) -> Metadata:
    """Extract the zip's own entries into `folder`. Raises IntegrityError."""
    try:
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                _plain(name)
            opened.extractall(folder)
            return metadata_in(opened)
    except (*NOT_A_SNAPSHOT, OSError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise IntegrityError(f"{archive.name}: not a readable snapshot: {error}") from error


def metadata_in(opened: zipfile.ZipFile) -> Metadata:
    """Parses the entry `metadata` of a snapshot. Raises IntegrityError, or one of NOT_A_SNAPSHOT."""
    version, _, text = opened.read("metadata").decode().partition("\n")
    if version.strip() not in ("v1", "v2"):
        raise IntegrityError(f"metadata of version {version!r}, expected v1 or v2")
    fields: dict[str, Any] = json.loads(text)
    ssts = [
        (f"SSTs/{_plain(file['dfsSstFileName'])}", _plain(file["localFileName"]), int(file["sizeBytes"]))
        for file in fields.get("sstFiles") or ()
    ]
    logs = [
        (f"logs/{_plain(file['dfsLogFileName'])}", f"archive/{_plain(file['localFileName'])}", int(file["sizeBytes"]))
        for file in fields.get("logFiles") or ()
    ]
    counted = int(fields.get("numKeys", -1))
    return Metadata((*ssts, *logs), counted + int(fields.get("numInternalKeys") or 0) if counted >= 0 else None)


def _plain(name: str) -> str:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise IntegrityError(f"file name {name!r} in a snapshot: expected a plain name")
    return name


def lay_out(metadata: Metadata, link: Link, folder: Path) -> None:
    """Puts the data files where the manifest expects them. Raises IntegrityError."""
    for name, path, size_bytes in metadata.files:
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        link(name, target)
        if os.stat(target).st_size != size_bytes:
            raise IntegrityError(f"{name} has {os.stat(target).st_size} bytes, the snapshot says {size_bytes}")


class SnapshotDatabase:
    """A database in a folder, read-only. Errors of RocksDB become IntegrityError."""

    def __init__(self, folder: Path) -> None:
        try:
            options = Options(raw_mode=True)
            families = {name: options for name in Rdict.list_cf(str(folder)) if name != DEFAULT}
            self._db = Rdict(str(folder), options, families or None, AccessType.read_only())
            self._families = {DEFAULT: self._db, **{name: self._db.get_column_family(name) for name in families}}
        except Exception as error:  # the binding has no narrower exception class
            raise IntegrityError(f"RocksDB does not open it: {error}") from error

    def close(self) -> None:
        self._db.close()

    def count(self) -> int:
        """Reads every entry of every column family, verifying all blocks. Returns their number.

        Raises IntegrityError, UnprovenError.
        """
        return sum(1 for _ in self.entries())

    def entries(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Column family, key and value of every entry, in the order of the first two. Raises as `count`."""
        try:
            for name, family in sorted(self._families.items()):
                for key, value in scan(family):
                    yield name, key, value
        except Exception as error:
            if "merge_operator" in str(error).lower() or "merge operator" in str(error).lower():
                raise UnprovenError(f"values are merged, which only Spark can read: {error}") from error
            raise IntegrityError(f"RocksDB cannot read it to its end: {error}") from error

    def __contains__(self, key: bytes) -> bool:
        try:
            return key in self._db
        except Exception as error:
            raise IntegrityError(f"RocksDB cannot look a key up: {error}") from error
