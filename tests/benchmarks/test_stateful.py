"""When the state of a benchmark counts as replicated, wherever its files lie."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cells import place_of
from benchmarks.stateful import BLOCK_COPIES, has_snapshot
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
    snapshot, first, second = "12_x.zip", *(f"SSTs/{name}" for name in SSTS)
    writer = store(tmp_path, "a", snapshot, first, second)
    others = [store(tmp_path, "b", snapshot, first), store(tmp_path, "c", second)]
    assert has_snapshot([writer, *others], 12, BLOCK_COPIES)
    assert not has_snapshot([writer, *others], 13, BLOCK_COPIES), "older than what is asked for"
    assert not has_snapshot([writer, others[0]], 12, BLOCK_COPIES)
    assert has_snapshot([writer], 12, 1)
    assert has_snapshot(others, 12, 1), "spread files are one snapshot"


def test_a_subject_says_where_its_files_go() -> None:
    spread = place_of("block-1gbit")
    assert (spread.rhino, spread.blocks, spread.remote_checkpoint) == (True, True, True)
    assert spread.settings == {
        "spark.rhino.placement": "block",
        "spark.rhino.replicationFactor": "2",
        "spark.rhino.minCopies": "2",
    }
    assert (place_of("stock").settings, place_of("rhino").settings) == ({}, {})
    assert not place_of("stock-cut").remote_checkpoint
