"""Zips of a client: what does not look like a snapshot is refused before it costs time or memory."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path

import pytest

from rhino_core.errors import InvalidRequestError
from tests.worker_runtime.cluster import zip_bytes
from worker_runtime.storage.arriving.zips import REFERENCES_MAX, zip_references


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def with_entries(count: int) -> bytes:
    """A zip that has only the list of its entries: the rest is never read."""
    name = b"n" * 30
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", *(0,) * 9, len(name), *(0,) * 6) + name
    size = count * len(entry)
    large = struct.pack("<4sIQI", b"PK\x06\x07", 0, size, 1) if count > 65535 else b""
    return entry * count + large + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0, 0, min(size, 2**32 - 1), 0, 0)


def test_a_snapshot_is_read(tmp_path: Path) -> None:
    assert zip_references(written(tmp_path / "z", zip_bytes("a.sst"))) == ("SSTs/a.sst",)


def test_a_zip_of_many_entries_is_refused_unread(tmp_path: Path) -> None:
    for name, count in (("z", 30_000), ("zip64", 70_000)):
        with pytest.raises(InvalidRequestError, match=r"a list of .* bytes|format for large zips"):
            zip_references(written(tmp_path / name, with_entries(count)))


def test_a_list_that_is_hidden_behind_a_small_one_is_refused(tmp_path: Path) -> None:
    content = with_entries(70_000)
    at = content.rfind(b"PK\x05\x06")
    small = content[: at + 12] + struct.pack("<I", 100) + content[at + 16 :]
    with pytest.raises(InvalidRequestError, match="format for large zips"):
        zip_references(written(tmp_path / "z", small))


def test_what_is_no_zip_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"x" * 100, b"PK\x05\x06"):
        with pytest.raises(InvalidRequestError, match="is not a snapshot"):
            zip_references(written(tmp_path / "z", content))


def test_more_files_than_one_message_holds_are_refused(tmp_path: Path) -> None:
    files = [{"localFileName": f"{n}.sst", "dfsSstFileName": f"{n}.sst"} for n in range(REFERENCES_MAX + 1)]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files}))
    with pytest.raises(InvalidRequestError, match=f"names {REFERENCES_MAX + 1} files, at most {REFERENCES_MAX}"):
        zip_references(written(tmp_path / "z", buffer.getvalue()))
