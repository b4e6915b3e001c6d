"""Reads a RocksDB from a key on, and says so when it cannot read on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocksdict import Rdict


def scan(db: Rdict, from_key: Any = None) -> Iterator[tuple[Any, Any]]:
    """Entries in order, from the first one or from `from_key` on. Raises what RocksDB says of a damaged block.

    `Rdict.items` ends at a damaged block as if nothing came behind it.
    """
    cursor = db.iter()
    if from_key is None:
        cursor.seek_to_first()
    else:
        cursor.seek(from_key)
    while cursor.valid():
        yield cursor.key(), cursor.value()
        cursor.next()
    cursor.status()
