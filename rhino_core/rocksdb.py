"""RocksDB for daemons: bounded memory and logs over months, and a scan with errors for damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocksdict import Options, Rdict

WRITE_BUFFER_BYTES = 4 * 1024 * 1024  # bounds memory and write-ahead log; RocksDB's default is 64 MiB
LOG_BYTES_MAX = 1024 * 1024
LOGS_KEPT = 2


def bounded(*, raw_mode: bool) -> Options:
    """Returns options with bounded logs. By default RocksDB logs statistics forever and keeps a thousand old logs."""
    options = Options(raw_mode=raw_mode)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_log_file_size(LOG_BYTES_MAX)
    options.set_keep_log_file_num(LOGS_KEPT)
    options.set_stats_dump_period_sec(0)
    return options


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
