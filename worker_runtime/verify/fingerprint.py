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
import re
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
# Of merged values, by Spark's setting stateStore.rocksdb.mergeOperatorVersion. No file has it, so both are tried.
_DELIMITERS = (b",", b"")
# RocksDB joins values of several files when they are read, by the operator in the snapshot's OPTIONS. These do not have
# the delimiter, and RocksDB would take a comma. This one shows where it has joined.
_JOINT = b"rhino-joint-5d0f7c1e94b84a3f"
_OPERATOR = re.compile(r"(?m)^( *merge_operator=).*StringAppendOperator.*$")
_CHECKSUM_BYTES = 4
_Values = tuple[bytes, ...]  # one for each delimiter


class _Change(NamedTuple):
    """`values`: None: the key is deleted. `added`: they come behind the one in the snapshot."""

    values: _Values | None
    added: bool = False


class Fingerprint(NamedTuple):
    """Hashes of all column families, keys and values in their order, and the number of keys.

    `digests`: one for each delimiter that Spark may have put between merged values.
    """

    digests: tuple[str, ...]
    keys: int

    def same(self, other: Fingerprint) -> bool:
        """Whether both have the same content, with the same delimiter."""
        return any(one == another for one, another in zip(self.digests, other.digests, strict=True))


_Entry = tuple[str, bytes, bytes | _Change]  # column family, key, value


def fingerprint(folder: Path) -> Fingerprint:
    """Reads the content of a version. Blocks.

    `folder` has the files of one closure, named as in the store. RocksDB gets its own folder in it. Raises
    IntegrityError, UnprovenError, and OSError for a full disk.
    """
    zips = list(folder.glob("*.zip"))
    if len(zips) > 1:
        raise IntegrityError(f"{', '.join(sorted(path.name for path in zips))}: a closure has one snapshot at most")
    base = _database(folder, zips[0]) if zips else None
    try:
        entries: Iterable[_Entry] = base.entries() if base is not None else ()
        digests, keys = [hashlib.blake2b(digest_size=16) for _ in _DELIMITERS], 0
        for family, key, values in _merged(entries, _changes(folder)):
            name = family.encode()
            for digest, value in zip(digests, values, strict=True):
                digest.update(_LENGTHS.pack(len(name), len(key), len(value)) + name + key + value)
            keys += 1
        return Fingerprint(tuple(digest.hexdigest() for digest in digests), keys)
    finally:
        if base is not None:
            base.close()


def _database(folder: Path, snapshot: Path) -> SnapshotDatabase:
    place = folder / "database"
    place.mkdir()
    metadata = unzip(snapshot, place)
    for options in place.glob("OPTIONS-*"):
        named = rf"\1{{id=StringAppendOperator;delimiter={_JOINT.decode()};}}"
        options.write_text(_OPERATOR.sub(named, options.read_text()))
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
                before = changes.get(change.key)
                values = _appended(before.values if before is not None else None, _each(change.value))
                changes[change.key] = _Change(values, added=before is None or before.added)
            else:
                changes[change.key] = _Change(_each(change.value))
    return changes


def _without_checksum(key: bytes) -> bytes:
    """Spark puts one before deleted keys, with its setting stateStore.rowChecksum.enabled."""
    rest = key[_CHECKSUM_BYTES:]
    return rest if rest and int.from_bytes(key[:_CHECKSUM_BYTES], sys.byteorder) == crc32c(rest) else key


def _each(value: bytes) -> _Values:
    if _JOINT not in value:
        return (value,) * len(_DELIMITERS)
    return tuple(value.replace(_JOINT, delimiter) for delimiter in _DELIMITERS)


def _appended(before: _Values | None, values: _Values) -> _Values:
    if before is None:
        return values
    return tuple(a + delimiter + b for a, delimiter, b in zip(before, _DELIMITERS, values, strict=True))


def _merged(entries: Iterable[_Entry], changes: Mapping[bytes, _Change]) -> Iterator[tuple[str, bytes, _Values]]:
    """The entries after the changes, all of the default column family. RocksDB orders keys by their bytes."""
    later: Iterator[_Entry] = ((DEFAULT, key, changes[key]) for key in sorted(changes))
    for (family, key), same in itertools.groupby(heapq.merge(entries, later, key=_place), _place):
        values: _Values | None = None
        for _, _, found in same:
            if not isinstance(found, _Change):
                values = _each(found)
            elif found.added and found.values is not None:
                values = _appended(values, found.values)
            else:
                values = found.values
        if values is not None:
            yield family, key, values


def _place(entry: _Entry) -> tuple[str, bytes]:
    return entry[:2]


def main() -> None:
    """Prints a line of JSON for each folder: the fields of its fingerprint, or why there is none."""
    os.nice(NICENESS)
    for folder in sys.argv[1:]:
        found: dict[str, object] = {}
        try:
            found = fingerprint(Path(folder))._asdict()
        except UnprovenError as error:
            found["unproven"] = str(error)
        except IntegrityError as error:
            found["damaged"] = str(error)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
