"""Snapshot zips of Spark's RocksDB state store: the names of their data files, and the zip of an empty store.

Reading blocks: call it in threads.
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from rhino_core.errors import InvalidRequestError

_END_MARK, _END = b"PK\x05\x06", struct.Struct("<12sI4x2x")  # the last record of a zip, without its comment
_END_BYTES_MAX = 22 + 65535
_END64_MARK, _END64_BYTES = b"PK\x06\x07", 20  # comes right before that record if the real sizes are elsewhere
_DIRECTORY_BYTES_MAX = 1024 * 1024
REFERENCES_MAX = 100_000  # per zip: all of them go into one message
_METADATA_BYTES_MAX = 64 * 1024 * 1024  # unpacked size of the `metadata` entry of a zip
# Without OSError, which concerns the disk. RuntimeError: encrypted, unsupported compression, or nested too deeply.
NOT_A_SNAPSHOT = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, EOFError),
    *(KeyError, TypeError, AttributeError, ValueError, RuntimeError),
)


def zip_references(path: Path) -> tuple[str, ...]:
    """Names of the data files in the `metadata` entry of a snapshot zip; none for an empty RocksDB.

    The entry is a line with a version ("v1" or "v2") and a JSON object, as Spark's RocksDBCheckpointMetadata writes it.
    Raises InvalidRequestError for anything else.
    """
    try:
        if (listed := _directory_bytes(path)) > _DIRECTORY_BYTES_MAX:
            raise InvalidRequestError(f"{path.name}: a list of {listed} bytes, of a snapshot's few files")
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo("metadata").file_size > _METADATA_BYTES_MAX:
                raise InvalidRequestError(f"{path.name}: the metadata entry is larger than {_METADATA_BYTES_MAX} bytes")
            version, _, text = archive.read("metadata").decode().partition("\n")
        references = _references(version.strip(), json.loads(text))
        if len(references) > REFERENCES_MAX:
            raise InvalidRequestError(
                f"{path.name}: names {len(references)} files, at most {REFERENCES_MAX} are allowed"
            )
        return references
    except NOT_A_SNAPSHOT as error:
        raise InvalidRequestError(f"{path.name} is not a snapshot of Spark's RocksDB state store: {error}") from error


def empty_snapshot() -> bytes:
    """Returns the zip of a store without keys, always the same bytes.

    It has the description of the snapshot and no file of RocksDB. So Spark creates the database when it opens the
    version, as it does for version 0.
    """
    metadata = json.dumps({"sstFiles": [], "numKeys": 0, "numInternalKeys": 0}, separators=(",", ":"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("metadata"), f"v1\n{metadata}")
    return buffer.getvalue()


def _directory_bytes(path: Path) -> int:
    """Size of the list of a zip's entries. Opening the zip would read the whole list into memory.

    Raises BadZipFile.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _END_BYTES_MAX))
        end = file.read()
    at = end.rfind(_END_MARK)
    if at < 0 or len(end) < at + _END.size:
        raise zipfile.BadZipFile("no end of a zip")
    if end[max(0, at - _END64_BYTES) : at].startswith(_END64_MARK):
        raise zipfile.BadZipFile("in the format for large zips")
    size: int = _END.unpack_from(end, at)[1]
    return size


def _references(version: str, metadata: dict[str, Any]) -> tuple[str, ...]:
    if version not in ("v1", "v2"):
        raise ValueError(f"metadata version {version!r}, expected v1 or v2")
    ssts = [f"SSTs/{file['dfsSstFileName']}" for file in metadata.get("sstFiles") or ()]
    logs = [f"logs/{file['dfsLogFileName']}" for file in metadata.get("logFiles") or ()]
    return tuple(dict.fromkeys([*ssts, *logs]))
