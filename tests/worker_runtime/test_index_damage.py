"""A damaged index is said to be damaged: half of it read as the whole would make recovery delete good files."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from rhino.errors import IntegrityError
from rhino.scan import scan
from tests.worker_runtime.spark_files import STORE, fill, spark_files
from worker_runtime.storage.store import Store


def damage_ssts(folder: Path) -> None:
    for sst in folder.glob("*.sst"):
        content = bytearray(sst.read_bytes())
        content[20] ^= 0xFF  # in the first data block
        sst.write_bytes(content)


async def test_a_store_with_a_damaged_index_does_not_open_and_loses_no_file(tmp_path: Path) -> None:
    await fill(tmp_path, spark_files())
    db = Rdict(str(tmp_path / "index"), Options(raw_mode=True))
    db.flush()
    db.close()
    before = sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file())
    damage_ssts(tmp_path / "index")
    with pytest.raises(IntegrityError, match="index is damaged"):
        Store.open("a", tmp_path, 0)
    assert sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file()) == before
    assert str(STORE.job) in str(before[0])


def test_scan_raises_where_the_plain_iterator_ends_silently(tmp_path: Path) -> None:
    db = Rdict(str(tmp_path), Options(raw_mode=True))
    for number in range(10):
        db[b"%d" % number] = b"value"
    db.flush()
    assert [key for key, _ in scan(db, b"7")] == [b"7", b"8", b"9"]
    db.close()
    damage_ssts(tmp_path)
    db = Rdict(str(tmp_path), Options(raw_mode=True))
    with pytest.raises(Exception, match=r"(?i)corruption"):
        list(scan(db))
    db.close()
