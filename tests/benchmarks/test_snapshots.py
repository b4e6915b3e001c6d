"""When the state of a benchmark counts as replicated and compacted, wherever its files lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import snapshots
from benchmarks.snapshots import Snapshot, between_compactions, whole_snapshots
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


def test_between_compactions_are_the_snapshot_with_the_merged_level_and_the_one_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "SMALL_BYTES", 4)
    found = [Snapshot(12, {"a": 40, "b": 40})]

    def then(**files: int) -> bool:
        found.append(Snapshot(found[-1].version + 10, files))
        return between_compactions(found)

    assert not between_compactions(found), "one says nothing"
    assert then(c=40, d=41), "all files are others"
    assert then(c=40, d=41, e=1)
    assert not then(c=40, d=41, e=1, f=1)
    assert not then(c=40, d=41, e=1, f=1, g=1), "the next one begins"
    assert then(c=40, d=41, m=4), "or there is nothing to merge with"
    assert then(h=80, i=44)
    assert then(h=80, i=44, j=1)
    assert not then(h=80, i=44, j=1, l=1)
    assert then(h=80, k=44, j=1), "of a large state only the upper level"


def test_a_small_state_is_always_between_compactions() -> None:
    assert between_compactions([Snapshot(12, {"a": 4})])
    assert not between_compactions([])
