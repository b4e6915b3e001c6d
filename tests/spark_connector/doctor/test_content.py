"""Parsers of what Spark writes."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import pytest

from rhino_core.errors import IntegrityError
from spark_connector.doctor import content

SCHEMA = '{"type":"struct","fields":[]}'


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def chunked(value: str) -> bytes:
    return struct.pack(">i", 1) + text(value)


V2 = text("v2") + chunked(SCHEMA) * 2
V3 = text("v3") + struct.pack(">i", 1) + text("default") + (b"\0\0" + chunked(SCHEMA)) * 2 + chunked(SCHEMA) * 2
OFFSETS = b'v1\n{"batchTimestampMs":5,"conf":{"a":"b"}}\n{"offset":7}\n-'


def snapshot(**entries: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, value in entries.items():
            archive.writestr(name.replace("_", "-"), value)
    return buffer.getvalue()


def listing(*files: str) -> str:
    ssts = [{"localFileName": name, "dfsSstFileName": f"x-{name}", "sizeBytes": 3} for name in files]
    return "v1\n" + json.dumps({"sstFiles": ssts, "numKeys": 1})


@pytest.mark.parametrize("data", [V2, V3, text("v1") + text(SCHEMA) * 2])
def test_schemas_of_all_versions_are_read_and_no_beginning_of_one_is(data: bytes) -> None:
    content.schema(data)
    for size in range(len(data)):
        with pytest.raises(IntegrityError):
            content.schema(data[:size])
    with pytest.raises(IntegrityError):
        content.schema(data + b"x")


def test_an_entry_of_the_offset_log() -> None:
    found = content.offset_entry(OFFSETS)
    assert found == content.OffsetEntry({"a": "b"}, 2, 5)
    assert content.offset_entry(b'v2\n{"conf":{}}\n0:{"a":1}\n1:-').sources == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"v1",
        b"v3\n{}\n1",
        b'v1\n{"conf":{}}',
        OFFSETS[:-5],
        OFFSETS[:12],
        b"\xff" + OFFSETS,
        b'v1\n{"conf":{}}\n{"x',
    ],
)
def test_damaged_entries_of_the_offset_log(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        content.offset_entry(data)


def test_snapshots_name_their_data_files() -> None:
    data = snapshot(CURRENT="MANIFEST-1\n", MANIFEST_1="x", metadata=listing("1.sst"))
    assert content.snapshot(data).files == (("SSTs/x-1.sst", "1.sst", 3),)
    assert content.snapshot(snapshot(metadata=listing())).files == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        snapshot(CURRENT="MANIFEST-2", MANIFEST_1="x", metadata=listing()),
        snapshot(CURRENT="MANIFEST-1", MANIFEST_1="x"),
        snapshot(metadata=listing("1.sst")),
        snapshot(metadata="v7\n{}"),
        snapshot(metadata='v1\n{"sstFiles":[{"localFileName":"../1.sst","dfsSstFileName":"x","sizeBytes":3}]}'),
    ],
)
def test_damaged_snapshots(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        content.snapshot(data)


def test_an_id_is_found_in_the_rest_of_its_file() -> None:
    job = "6cdca789-1774-491b-b3fb-39b042eece10"
    assert content.query_id(f'{{"id":"{job}"}}'.encode()) == job
    assert content.query_id_within(f'\xff{{"id":"{job}'.encode("latin-1")) == job
    assert content.query_id_within(b"nothing") == ""
