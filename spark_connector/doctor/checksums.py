"""Checksum files beside the files of a checkpoint. No I/O.

Hadoop's file systems with checksums, such as the local one, write `.<name>.crc`: a CRC-32 for each 512 bytes. Spark
4.1 and later write `<name>.crc` beside files of state: a JSON object with the CRC-32C and the size. Spark refuses a
file that does not match its own. It compares Hadoop's when it copies data files, or with a checkpoint file manager on
Hadoop's FileSystem. It reads a file without them.
"""

from __future__ import annotations

import json
import posixpath
import struct
import zlib

from crc32c import crc32c

from rhino_core.errors import IntegrityError
from rhino_core.foreign import reading

_HADOOP = struct.Struct(">4sI")
_MAGIC = b"crc\0"


def names_of(name: str) -> tuple[str, str]:
    """Returns the names of Hadoop's and of Spark's checksum file for a file."""
    folder, base = posixpath.split(name)
    return posixpath.join(folder, f".{base}.crc"), f"{name}.crc"


def is_sum(name: str) -> bool:
    return name.endswith(".crc")


def subject(name: str) -> str:
    """Returns the name of the file that a checksum file is about."""
    folder, base = posixpath.split(name.removesuffix(".crc"))
    return posixpath.join(folder, base.removeprefix("."))


def hadoop_matches(sums: bytes, data: bytes) -> bool:
    """Raises IntegrityError if `sums` is no checksum file, or has too many or too few. Hadoop ignores such a file."""
    if len(sums) < _HADOOP.size:
        raise IntegrityError(f"has {len(sums)} bytes, and a header has {_HADOOP.size}")
    magic, size = _HADOOP.unpack_from(sums)
    if magic != _MAGIC or not 0 < size <= 1 << 20:
        raise IntegrityError("does not begin as Hadoop's checksum files do")
    count, odd = divmod(len(sums) - _HADOOP.size, 4)
    view = memoryview(data)
    computed = [zlib.crc32(view[begin : begin + size]) for begin in range(0, len(data), size)]
    pairs = zip(computed, struct.unpack_from(f">{count}I", sums, _HADOOP.size), strict=False)
    if any(one != other for one, other in pairs):
        return False
    if odd or count != len(computed):
        raise IntegrityError(f"has {len(sums)} bytes, and the file needs {_HADOOP.size + 4 * len(computed)}")
    return True


def spark_matches(sums: bytes, data: bytes) -> bool:
    """Raises IntegrityError if `sums` is no checksum file of Spark."""
    with reading("its content"):
        fields = json.loads(sums.decode())
        if fields["algorithm"] != "CRC32C":
            raise ValueError(f"algorithm {fields['algorithm']!r}, expected CRC32C")
        expected, size = int(fields["value"]) & 0xFFFFFFFF, int(fields["mainFileSize"])
    return size == len(data) and expected == crc32c(data)
