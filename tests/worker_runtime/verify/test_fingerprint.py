"""Fingerprints of what Spark wrote: every closure of a version gives the same one, and other content another one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_core.errors import IntegrityError
from tests.worker_runtime.spark_files import KEYS_4, SparkFiles, spark_files
from worker_runtime.verify import changelog, lz4_blocks
from worker_runtime.verify.changelog import Change, Changelog
from worker_runtime.verify.fingerprint import fingerprint
from worker_runtime.verify.snapshot import UnprovenError

pytestmark = pytest.mark.skipif(not lz4_blocks.available(), reason="lz4 and xxhash are not installed (extra: verify)")
FROM_SNAPSHOT = ("4_*.zip", "SSTs/*")
FROM_CHANGELOGS = ("1_*.zip", "2_*.changelog", "3_*.changelog", "4_*.changelog", "SSTs/*")


@pytest.fixture
def files() -> SparkFiles:
    return spark_files()


def closure(folder: Path, files: SparkFiles, *patterns: str) -> Path:
    """A folder with these files."""
    for name, content in files.content.items():
        if any(Path(name).match(pattern) for pattern in patterns):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def test_a_snapshot_and_replayed_changelogs_have_the_same_content(tmp_path: Path, files: SparkFiles) -> None:
    digest, keys = fingerprint(closure(tmp_path / "a", files, *FROM_SNAPSHOT))
    assert keys == KEYS_4
    assert fingerprint(closure(tmp_path / "b", files, *FROM_CHANGELOGS)) == (digest, keys)


def test_another_version_has_another_content(tmp_path: Path, files: SparkFiles) -> None:
    fourth = fingerprint(closure(tmp_path / "a", files, *FROM_SNAPSHOT))
    assert fingerprint(closure(tmp_path / "b", files, *FROM_SNAPSHOT, "5_*.changelog")) != fourth
    assert fingerprint(closure(tmp_path / "c", files, *FROM_CHANGELOGS[:-2], "SSTs/*")) != fourth, "a lost changelog"


def of_changes(folder: Path, files: SparkFiles, monkeypatch: pytest.MonkeyPatch, *changes: Change) -> tuple[str, int]:
    """Of a changelog with these changes alone."""
    monkeypatch.setattr(changelog, "parse", lambda data: Changelog((), changes))
    return fingerprint(closure(folder, files, "5_*.changelog"))


def test_one_value_makes_another_fingerprint(
    tmp_path: Path, files: SparkFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    checksum = crc32c(b"k").to_bytes(4, sys.byteorder)
    same = [
        [[Change(b"k", b"v")], [Change(b"k", b"w"), Change(b"k", b"v")], [Change(b"k", b"v", merges=True)]],
        [[Change(b"k", b"w")]],
        [[Change(b"kv", b"")]],
        [[], [Change(b"k", b"v"), Change(b"k", None)], [Change(b"k", b"v"), Change(checksum + b"k", None)]],
        [[Change(b"l", b"v"), Change(b"k", b"v")], [Change(b"k", b"v"), Change(b"l", b"v")]],
        [
            [Change(b"k", b"v,w")],
            [Change(b"k", b"v"), Change(b"k", b"w", merges=True)],
            [Change(b"k", b"x"), Change(b"k", None), *(Change(b"k", one, merges=True) for one in (b"v", b"w"))],
        ],
    ]
    found = [
        {of_changes(tmp_path / f"{i}{j}", files, monkeypatch, *changes) for j, changes in enumerate(alike)}
        for i, alike in enumerate(same)
    ]
    assert [len(one) for one in found] == [1] * len(same)
    assert len(set.union(*found)) == len(same)
    assert [keys for ((_, keys),) in found] == [1, 1, 1, 0, 2, 1]


def test_a_closure_that_lacks_a_file_is_damaged(tmp_path: Path, files: SparkFiles) -> None:
    with pytest.raises(IntegrityError, match="which is not there"):
        fingerprint(closure(tmp_path, files, "4_*.zip"))


def test_what_only_spark_can_read_is_unproven(tmp_path: Path, files: SparkFiles) -> None:
    path = closure(tmp_path, files, "5_*.changelog") / files.named("5_")
    path.write_bytes(b"zstd" + path.read_bytes())
    with pytest.raises(UnprovenError, match="not LZ4"):
        fingerprint(tmp_path)


def test_the_program_prints_a_line_for_each_folder(tmp_path: Path, files: SparkFiles) -> None:
    folders = [
        closure(tmp_path / "a", files, *FROM_SNAPSHOT),
        closure(tmp_path / "b", files, "4_*.zip"),
        closure(tmp_path / "c", files),
    ]
    (tmp_path / "c").mkdir()
    command = [sys.executable, "-P", "-m", "worker_runtime.verify.fingerprint", *map(str, folders)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    whole, damaged, empty = map(json.loads, output.splitlines())
    assert whole == {"digest": fingerprint(closure(tmp_path / "d", files, *FROM_SNAPSHOT))[0], "keys": KEYS_4}
    assert "SSTs/" in damaged["damaged"]
    assert empty["keys"] == 0
