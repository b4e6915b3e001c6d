"""Fingerprints of the content of versions. Every closure that opens a version gives the same one.

`python -m worker_runtime.verify.fingerprint FOLDER...` prints them. A process of its own has a low priority, and only
itself ends when RocksDB does not survive damaged files.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from rhino_core.errors import IntegrityError
from rhino_core.ids import parse_name
from worker_runtime.verify import changelog
from worker_runtime.verify.snapshot import DEFAULT, SnapshotDatabase, UnprovenError, lay_out, unzip

NICENESS = 19
_LENGTHS = struct.Struct(">III")
_DELIMITER = b","  # of Spark's merge operator, RocksDB's StringAppendOperator
_CHECKSUM_BYTES = 4


class _Change(NamedTuple):
    """`value`: None: the key is deleted. `added`: the value comes behind the one in the snapshot."""

    value: bytes | None
    added: bool = False


_Entry = tuple[str, bytes, bytes | _Change]  # column family, key, value


def fingerprint(folder: Path) -> tuple[str, int]:
    """Hash of all column families, keys and values in their order, and the number of keys. Blocks.

    `folder` has the files of one closure, named as in the store. RocksDB gets its own folder in it. Raises
    IntegrityError, UnprovenError, and OSError for a full disk.
    """
    zips = list(folder.glob("*.zip"))
    if len(zips) > 1:
        raise IntegrityError(f"{', '.join(sorted(path.name for path in zips))}: a closure has one snapshot at most")
    base = _database(folder, zips[0]) if zips else None
    try:
        entries: Iterable[_Entry] = base.entries() if base is not None else ()
        digest, keys = hashlib.blake2b(digest_size=16), 0
        for family, key, value in _merged(entries, _changes(folder)):
            name = family.encode()
            digest.update(_LENGTHS.pack(len(name), len(key), len(value)))
            digest.update(name + key + value)
            keys += 1
        return digest.hexdigest(), keys
    finally:
        if base is not None:
            base.close()


def _database(folder: Path, snapshot: Path) -> SnapshotDatabase:
    place = folder / "database"
    place.mkdir()
    metadata = unzip(snapshot, place)
    try:
        lay_out(metadata, lambda name, target: os.link(folder / name, target), place)
    except FileNotFoundError as error:
        raise IntegrityError(f"{snapshot.name}: names {error.filename}, which is not there") from error
    return SnapshotDatabase(place)


def _changes(folder: Path) -> Mapping[bytes, _Change]:
    """The newest value of each key in the changelogs."""
    changes: dict[bytes, _Change] = {}
    for path in sorted(folder.glob("*.changelog"), key=lambda path: parse_name(path.name).version or ()):
        data = path.read_bytes()
        if not changelog.readable(data):
            raise UnprovenError(
                f"{path.name}: it is not LZ4, or lz4 and xxhash are not installed (pip install 'rhino-state[archive]')"
            )
        for change in changelog.parse(data).changes:
            if change.value is None:
                changes[_without_checksum(change.key)] = _Change(None)
            elif change.merges:
                changes[change.key] = _appended(changes.get(change.key), change.value)
            else:
                changes[change.key] = _Change(change.value)
    return changes


def _without_checksum(key: bytes) -> bytes:
    """Spark puts one before deleted keys, with its setting stateStore.rowChecksum.enabled."""
    rest = key[_CHECKSUM_BYTES:]
    return rest if rest and int.from_bytes(key[:_CHECKSUM_BYTES], sys.byteorder) == crc32c(rest) else key


def _appended(before: _Change | None, value: bytes) -> _Change:
    if before is None or before.value is None:
        return _Change(value, added=before is None)
    return _Change(before.value + _DELIMITER + value, before.added)


def _merged(entries: Iterable[_Entry], changes: Mapping[bytes, _Change]) -> Iterator[tuple[str, bytes, bytes]]:
    """The entries after the changes, all of the default column family. RocksDB orders keys by their bytes."""
    later: Iterator[_Entry] = ((DEFAULT, key, changes[key]) for key in sorted(changes))
    for (family, key), same in itertools.groupby(heapq.merge(entries, later, key=_place), _place):
        value: bytes | None = None
        for _, _, found in same:
            if not isinstance(found, _Change):
                value = found
            elif found.added and found.value is not None and value is not None:
                value += _DELIMITER + found.value
            else:
                value = found.value
        if value is not None:
            yield family, key, value


def _place(entry: _Entry) -> tuple[str, bytes]:
    return entry[:2]


def main() -> None:
    """Prints a line of JSON for each folder: digest and keys, or why there are none."""
    os.nice(NICENESS)
    for folder in sys.argv[1:]:
        found: dict[str, object] = {}
        try:
            found["digest"], found["keys"] = fingerprint(Path(folder))
        except UnprovenError as error:
            found["unproven"] = str(error)
        except IntegrityError as error:
            found["damaged"] = str(error)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
