"""The content of a checkpoint's files: parsers that tell damage. No I/O.

Each raises IntegrityError for content that Spark would not read.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from dataclasses import dataclass
from typing import Any

from rhino_core.errors import IntegrityError
from rhino_core.foreign import reading
from worker_runtime.storage.arriving.zips import NOT_A_SNAPSHOT
from worker_runtime.verify.snapshot import Metadata, metadata_in

PARTITIONS_MAX = 1_000_000
_UNPACKED_BYTES_MAX = 1024**3  # of a snapshot's zip: its manifest and logs
_SST_MAGIC = (0x88E241B785F4CFF7, 0xDB4775248B80FB57)  # the last eight bytes of block-based tables, new and old
_SCHEMAS = ("v1", "v2", "v3")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """`conf`: the settings of the batch. `planned_ms`: Spark's wall clock; 0 if unknown."""

    conf: dict[str, str]
    sources: int
    planned_ms: int


def offset_entry(data: bytes) -> OffsetEntry:
    with reading("its content"):
        version, settings, *offsets = data.decode().split("\n")
        if version.strip() not in ("v1", "v2"):
            raise ValueError(f"version of the log {version!r}, expected v1 or v2")
        fields = json.loads(settings)
        for line in offsets:
            offset = line.partition(":")[2] if version.strip() == "v2" else line
            if offset.startswith(("{", "[")):
                json.loads(offset)
            elif not offset:
                raise ValueError("an offset is empty")
        if not offsets:
            raise ValueError("it has no offset of any source")
        conf = {str(key): str(value) for key, value in fields["conf"].items()}
        return OffsetEntry(conf, len(offsets), int(fields.get("batchTimestampMs", 0)))


def query_id(data: bytes) -> str:
    with reading("its content"):
        return str(json.loads(data)["id"])


def query_id_within(data: bytes) -> str:
    """Returns the id that is legible in a damaged `metadata`; empty if none is."""
    found = _ID.search(data.decode(errors="replace"))
    return found[0] if found else ""


def operator(data: bytes) -> dict[str, Any]:
    """Returns the JSON object in an operator's metadata."""
    with reading("its content"):
        version, _, body = data.decode().partition("\n")
        if version.strip() not in ("v1", "v2"):
            raise ValueError(f"version {version!r}, expected v1 or v2")
        fields: dict[str, Any] = json.loads(body)
        int(fields["operatorInfo"]["operatorId"])
        for store in fields["stateStoreInfo"]:
            if not 0 < int(store["numPartitions"]) <= PARTITIONS_MAX or not isinstance(store["storeName"], str):
                raise ValueError(f"store {store['storeName']!r} of {store['numPartitions']} partitions")
            if not all(isinstance(path, str) for path in store.get("stateSchemaFilePaths", ())):
                raise ValueError("a path of a schema file in it is no text")
        return fields


def schema(data: bytes) -> None:
    """Reads a file of state schemas to its end."""
    reader = _Texts(data)
    version = reader.text()
    if version not in _SCHEMAS:
        raise IntegrityError(f"schema of version {version!r}, expected one of {', '.join(_SCHEMAS)}")
    families = reader.number() if version == "v3" else 1
    for _ in range(families):
        if version == "v3":
            reader.text()
        for part in range(4 if version == "v3" else 2):
            if version == "v3" and part < 2:
                reader.short()  # the id of the schema
            text = reader.text() if version == "v1" else "".join(reader.text() for _ in range(reader.number()))
            with reading("a schema in it"):
                json.loads(text)
    if not reader.at_end:
        raise IntegrityError("goes on behind its last schema")


def snapshot(data: bytes) -> Metadata:
    """Reads the zip of a RocksDB snapshot completely, and returns which data files it names."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > _UNPACKED_BYTES_MAX:
                raise IntegrityError(f"it unpacks to more than {_UNPACKED_BYTES_MAX} bytes")
            if damaged := archive.testzip():
                raise IntegrityError(f"its entry {damaged} does not match its checksum")
            found = metadata_in(archive)
            if "CURRENT" in archive.namelist():
                manifest = archive.read("CURRENT").decode().strip()
                if manifest not in archive.namelist():
                    raise IntegrityError(f"it has no {manifest}, which its entry CURRENT names")
            elif found.files:
                raise IntegrityError("it has no entry CURRENT")
    except NOT_A_SNAPSHOT as error:
        raise IntegrityError(f"it is no readable snapshot: {error}") from error
    return found


def table(data: bytes) -> None:
    """Looks at the end of a data file of RocksDB."""
    if len(data) < 8 or struct.unpack("<Q", data[-8:])[0] not in _SST_MAGIC:
        raise IntegrityError("it does not end as a data file of RocksDB does")


class _Texts:
    """Reads texts and numbers as java.io.DataInput does."""

    def __init__(self, data: bytes) -> None:
        self._data, self._offset = data, 0

    @property
    def at_end(self) -> bool:
        return self._offset == len(self._data)

    def number(self) -> int:
        number = int(struct.unpack(">i", self._take(4))[0])
        if not 0 <= number <= len(self._data):
            raise IntegrityError(f"has the number {number} before byte {self._offset}, of parts")
        return number

    def short(self) -> int:
        return int(struct.unpack(">H", self._take(2))[0])

    def text(self) -> str:
        with reading("a text in it"):
            return self._take(self.short()).decode()

    def _take(self, size: int) -> bytes:
        if self._offset + size > len(self._data):
            raise IntegrityError(f"is cut off at byte {self._offset}")
        self._offset += size
        return self._data[self._offset - size : self._offset]
