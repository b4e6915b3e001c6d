"""Journals and indexes that are open for months, or opened very often, stay small."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rhino_core.journal import Journal
from rhino_core.rocksdb import LOG_BYTES_MAX, LOGS_KEPT, WRITE_BUFFER_BYTES
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.index.index import Index

MB = 1_000_000
OPEN: dict[str, Callable[[Path], Journal | Index]] = {
    "journal": lambda path: Journal(path, bootstrap=True),
    "index": lambda path: Index(path, Disk(path, 0)),
}
databases = pytest.mark.parametrize("kind", OPEN)


def put(database: Journal | Index, value: str) -> None:
    if isinstance(database, Journal):
        database.write({"key": value})
    else:
        database.put_metadata("key", value)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # RocksDB deletes in a thread of its own
        return 0


@databases
def test_what_is_written_over_and_over_takes_no_more_room(kind: str, tmp_path: Path) -> None:
    database = OPEN[kind](tmp_path)
    for number in range(60):
        put(database, f"{number:06d}" * (MB // 6))
    used = sum(map(size_of, tmp_path.iterdir()))
    database.close()
    assert used < 8 * WRITE_BUFFER_BYTES


@databases
def test_logs_for_people_end(kind: str, tmp_path: Path) -> None:
    for _ in range(LOGS_KEPT + 4):
        OPEN[kind](tmp_path).close()
    assert len(list(tmp_path.glob("LOG*"))) <= LOGS_KEPT
    newest = max(tmp_path.glob("OPTIONS-*")).read_text()
    assert f"max_log_file_size={LOG_BYTES_MAX}\n" in newest
    assert "stats_dump_period_sec=0\n" in newest, "statistics would be added to the log for ever"
