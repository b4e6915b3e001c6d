"""When the state of a benchmark counts as replicated and compacted, wherever its files lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import snapshots
from benchmarks.snapshots import compacted, whole_snapshots
from tests.worker_runtime.cluster import zip_bytes

SSTS = ("000001-a.sst", "000002-b.sst")


def store(root: Path, name: str, *files: str) -> Path:
    folder = root / name
    (folder / "default" / "SSTs").mkdir(parents=True)
    for file in files:
        content = zip_bytes(*SSTS) if file.endswith(".zip") else b"data"
        (folder / "default" / file).write_bytes(content)
    return folder


def test_every_file_counts_by_itself(tmp_path: Path) -> None:
    def versions(stores: list[Path], oldest: int, copies: int) -> list[int]:
        return [found.version for found in whole_snapshots(stores, oldest, copies)]

    snapshot, first, second = "12_x.zip", *(f"SSTs/{name}" for name in SSTS)
    writer = store(tmp_path, "a", snapshot, first, second)
    others = [store(tmp_path, "b", snapshot, first), store(tmp_path, "c", second)]
    assert versions([writer, *others], 12, 2) == [12]
    assert versions([writer, *others], 13, 2) == [], "older than what is asked for"
    assert versions([writer, others[0]], 12, 2) == []
    assert versions([writer], 12, 1) == [12]
    assert versions(others, 12, 1) == [12], "spread files are one snapshot"
    assert whole_snapshots([writer], 12, 1)[0].files == {first: 4, second: 4}


def test_compacted_is_what_grows_by_little_from_one_snapshot_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "COMPACTED_BYTES", 4)
    folder = store(tmp_path, "a", "12_x.zip", *(f"SSTs/{name}" for name in (*SSTS, "000003-c.sst", "000004-d.sst")))
    assert not compacted([folder], 12, 1), "one says nothing"
    (folder / "default" / "22_y.zip").write_bytes(zip_bytes("000003-c.sst", "000004-d.sst"))
    assert not compacted([folder], 12, 1), "all files are others"
    (folder / "default" / "32_z.zip").write_bytes(zip_bytes("000003-c.sst", "000001-a.sst"))
    assert compacted([folder], 12, 1)
    assert not compacted([folder], 23, 1), "older than what is asked for"
