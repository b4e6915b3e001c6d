"""Bounds for the memory and the logs of a RocksDB open for months."""

from __future__ import annotations

from rocksdict import Options

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
