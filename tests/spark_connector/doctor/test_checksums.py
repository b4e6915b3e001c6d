"""Both kinds of checksum files."""

from __future__ import annotations

import json
import struct
import zlib

import pytest
from crc32c import crc32c

from rhino_core.errors import IntegrityError
from spark_connector.doctor import checksums

DATA = bytes(range(256)) * 5


def hadoop_sums(data: bytes) -> bytes:
    chunks = [data[begin : begin + 512] for begin in range(0, len(data), 512)]
    return b"crc\0" + struct.pack(">I", 512) + b"".join(struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)


def spark_sums(data: bytes, **other: object) -> bytes:
    value = struct.unpack(">i", struct.pack(">I", crc32c(data)))[0]  # a Java int
    return json.dumps({"algorithm": "CRC32C", "value": value, "mainFileSize": len(data)} | other).encode()


@pytest.mark.parametrize("data", [DATA, b"", b"x", DATA[:1024]])
def test_sums_of_a_whole_file_match(data: bytes) -> None:
    assert checksums.hadoop_matches(hadoop_sums(data), data)
    assert checksums.spark_matches(spark_sums(data), data)


@pytest.mark.parametrize("other", [DATA[:-1], DATA + b"x", DATA[:700] + b"!" + DATA[701:]])
def test_sums_of_another_file_do_not_match(other: bytes) -> None:
    assert not checksums.hadoop_matches(hadoop_sums(DATA), other)
    assert not checksums.spark_matches(spark_sums(DATA), other)


@pytest.mark.parametrize(
    "sums", [b"", b"crc\0", b"crx" + hadoop_sums(DATA)[3:], hadoop_sums(DATA)[:-1], b"crc\0" + bytes(8)]
)
def test_damaged_sums_of_hadoop_are_told_from_damaged_files(sums: bytes) -> None:
    with pytest.raises(IntegrityError):
        checksums.hadoop_matches(sums, DATA)


@pytest.mark.parametrize(
    "sums", [b"", b"{", b"\xff", b"{}", spark_sums(DATA, algorithm="MD5"), spark_sums(DATA, value="x")]
)
def test_damaged_sums_of_spark_are_told_from_damaged_files(sums: bytes) -> None:
    with pytest.raises(IntegrityError):
        checksums.spark_matches(sums, DATA)


def test_names_of_checksum_files_lead_back_to_the_file() -> None:
    for name in ("metadata", "state/0/1/8_x.changelog"):
        assert {checksums.subject(sums) for sums in checksums.names_of(name)} == {name}
