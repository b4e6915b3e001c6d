"""Spark's changelogs of checkpoint format 2: a header with format and lineage, then the changes of one batch.

StateStoreChangelogWriterV3 (no record types) and V4 (with merges) write them. V1 and V2, of checkpoint format 1, have
the same records, but no lineage. They are never stored: `with_lineage` makes V3 and V4 of them. Deltas and snapshots of
the HDFS-backed provider are like V1.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rhino_core.errors import IntegrityError, PreconditionError
from rhino_core.ids import Version
from worker_runtime.verify import lz4_blocks

_WITH_LINEAGE = {"v1": "v3", "v2": "v4", "v3": "v3", "v4": "v4"}
_TEXT_BYTES_MAX = 65535  # java.io.DataOutput.writeUTF
_PUT, _DELETE, _MERGE, _END = 0x01, 0x10, 0x11, 0x00


@dataclass(frozen=True, slots=True)
class Change:
    """`value`: of the key afterwards; None: the key is deleted. `merges`: it is added to the value before."""

    key: bytes
    value: bytes | None
    merges: bool = False


@dataclass(frozen=True, slots=True)
class Changelog:
    """`lineage` as in the header: oldest first, without the changelog's own version."""

    lineage: tuple[Version, ...]
    changes: tuple[Change, ...]


def readable(data: bytes) -> bool:
    """Whether `parse` supports this compression and has the packages it needs. Spark's default is LZ4."""
    return is_lz4(data) and lz4_blocks.available()


def is_lz4(data: bytes) -> bool:
    """Whether the changelog is compressed with LZ4, as Spark does by default."""
    return data.startswith(lz4_blocks.MAGIC)


def parse(data: bytes) -> Changelog:
    """Parses a changelog. Raises IntegrityError for data that Spark would not read to its end."""
    reader = _Reader(lz4_blocks.unpack(data))
    version, lineage = _header(reader)
    return Changelog(lineage, tuple(_changes(reader, version)))


def lineage(data: bytes) -> tuple[Version, ...]:
    """The lineage only. Raises IntegrityError."""
    return _header(_Reader(lz4_blocks.unpack(data)))[1]


def with_lineage(data: bytes, versions: Sequence[Version]) -> bytes:
    """Returns a changelog as one of format 2: with this lineage in place of its own, and with the same records.

    Raises IntegrityError for data that Spark would not read, and PreconditionError for a lineage that is too long.
    """
    content = lz4_blocks.unpack(data)
    reader = _Reader(content)
    kind = _kind(content)
    if kind in ("v3", "v4"):
        _header(reader)
    elif kind == "v2":
        reader.text()
    kind, records = _WITH_LINEAGE[kind], reader.rest
    items = [{"version": item.version, "checkpointUniqueId": item.checkpoint_id} for item in versions]
    header = json.dumps(items, separators=(",", ":")).encode()
    if len(header) > _TEXT_BYTES_MAX:
        raise PreconditionError(f"a lineage of {len(versions)} versions is too long for the header of a changelog")
    return lz4_blocks.pack(b"".join([_text(kind.encode()), _text(header), records]))


def check(data: bytes, *, lineage_wanted: bool) -> None:
    """Reads a changelog, or a file of the HDFS-backed provider, to its end.

    `lineage_wanted`: it must be of format 2. Raises IntegrityError for data that Spark would not read.
    """
    content = lz4_blocks.unpack(data)
    reader, kind = _Reader(content), _kind(content)
    if lineage_wanted:
        _header(reader)
    elif kind != "v1":
        reader.text()
    for _ in _changes(reader, kind):
        pass


def _kind(content: bytes) -> str:
    """V1 has no header: it begins with the length of the first key. Spark tells them apart in the same way."""
    return next((kind for kind in _WITH_LINEAGE if content.startswith(_text(kind.encode()))), "v1")


def _text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def _header(reader: _Reader) -> tuple[str, tuple[Version, ...]]:
    version = reader.text()
    if version not in ("v3", "v4"):
        raise IntegrityError(f"changelog of format {version!r}, expected v3 or v4")
    return version, _lineage(reader.text())


def _lineage(text: str) -> tuple[Version, ...]:
    try:
        return tuple(Version(int(item["version"]), str(item["checkpointUniqueId"])) for item in json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        raise IntegrityError(f"the changelog's lineage is not readable: {error}") from error


def _changes(reader: _Reader, kind: str) -> Iterator[Change]:
    yield from _changes_v3(reader) if kind in ("v1", "v3") else _changes_v4(reader)
    if not reader.at_end:
        raise IntegrityError("the changelog goes on behind its end mark")


def _changes_v3(reader: _Reader) -> Iterator[Change]:
    while (length := reader.number()) != -1:
        key = reader.take(length)
        value_length = reader.number()
        yield Change(key, reader.take(value_length) if value_length >= 0 else None)


def _changes_v4(reader: _Reader) -> Iterator[Change]:
    while (kind := reader.take(1)[0]) != _END:
        if kind not in (_PUT, _DELETE, _MERGE):
            raise IntegrityError(f"record type {kind:#04x} in a changelog")
        key = reader.take(reader.number())
        value_length = reader.number()
        if kind == _DELETE and value_length != -1:
            raise IntegrityError("a deletion with a value in a changelog")
        yield Change(key, None if kind == _DELETE else reader.take(value_length), merges=kind == _MERGE)


class _Reader:
    """Reads big-endian values like java.io.DataInputStream."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    @property
    def at_end(self) -> bool:
        return self._offset == len(self._data)

    @property
    def rest(self) -> bytes:
        return self._data[self._offset :]

    def take(self, length: int) -> bytes:
        if length < 0 or self._offset + length > len(self._data):
            raise IntegrityError(f"the changelog is cut off or garbled at byte {self._offset} (unpacked)")
        self._offset += length
        return self._data[self._offset - length : self._offset]

    def number(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def text(self) -> str:
        (length,) = struct.unpack(">H", self.take(2))
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise IntegrityError(f"the changelog's header is not readable: {error}") from error
