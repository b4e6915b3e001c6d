"""Reads a RocksDB from a key onwards, and raises an error when it cannot read further."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocksdict import Rdict


def scan(db: Rdict, from_key: Any = None) -> Iterator[tuple[Any, Any]]:
    """Yields entries in order, from the first one or from `from_key` onwards.

    Raises RocksDB's error for a damaged block. `Rdict.items` would stop there silently.
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
