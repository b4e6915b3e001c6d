"""Fingerprints of what Spark wrote: every closure of a version gives the same one, and other content another one."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_core.errors import IntegrityError
from tests.worker_runtime.spark_files import KEYS_4, SparkFiles, spark_files
from worker_runtime.verify import changelog, lz4_blocks
from worker_runtime.verify.changelog import Change, Changelog
from worker_runtime.verify.fingerprint import Fingerprint, _database, fingerprint
from worker_runtime.verify.snapshot import DEFAULT, UnprovenError

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
    found = fingerprint(closure(tmp_path / "a", files, *FROM_SNAPSHOT))
    assert found.keys == KEYS_4
    assert fingerprint(closure(tmp_path / "b", files, *FROM_CHANGELOGS)).same(found)


def test_values_that_are_merged_in_several_files_are_joined_as_spark_does(tmp_path: Path) -> None:
    """A join that Spark 4.3 has written: no delimiter. RocksDB alone would read commas."""
    data = Path(__file__).parents[1] / "data" / "merged-store-of-spark-4.3.tar.xz"
    found = []
    for name, patterns in {"a": ("7_*.zip", "SSTs/*"), "b": ("4_*.zip", "[567]_*.changelog", "SSTs/*")}.items():
        with tarfile.open(data) as archive:
            for one in archive:
                if (file := archive.extractfile(one)) and any(Path(one.name).match(pattern) for pattern in patterns):
                    path = tmp_path / name / one.name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(file.read())
        found.append(fingerprint(tmp_path / name))
    snapshot, replayed = found
    assert snapshot.keys == replayed.keys == 1692
    assert snapshot.same(replayed)
    assert [one == other for one, other in zip(snapshot.digests, replayed.digests, strict=True)] == [False, True]


def test_another_version_has_another_content(tmp_path: Path, files: SparkFiles) -> None:
    fourth = fingerprint(closure(tmp_path / "a", files, *FROM_SNAPSHOT))
    assert not fingerprint(closure(tmp_path / "b", files, *FROM_SNAPSHOT, "5_*.changelog")).same(fourth)
    lost = closure(tmp_path / "c", files, *FROM_CHANGELOGS[:-2], "SSTs/*")
    assert not fingerprint(lost).same(fourth), "a changelog is lost"


def of_changes(folder: Path, files: SparkFiles, monkeypatch: pytest.MonkeyPatch, *changes: Change) -> Fingerprint:
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
    assert [one.keys for (one,) in found] == [1, 1, 1, 0, 2, 1]


def test_merged_values_have_one_of_two_delimiters(
    tmp_path: Path, files: SparkFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a setting of Spark. A snapshot has them joined, and changelogs each alone."""

    def found(name: str, *changes: Change) -> Fingerprint:
        return of_changes(tmp_path / name, files, monkeypatch, *changes)

    merged = found("merged", Change(b"k", b"v"), *(Change(b"k", one, merges=True) for one in (b"w", b"x")))
    assert merged.same(found("comma", Change(b"k", b"v,w,x")))
    assert merged.same(found("none", Change(b"k", b"vwx")))
    assert merged.same(merged)
    for number, other in enumerate((b"v,wx", b"vw,x", b"v", b"v;w;x", b"x,w,v")):
        assert not merged.same(found(str(number), Change(b"k", other)))


def test_a_merge_adds_to_the_value_in_the_snapshot(
    tmp_path: Path, files: SparkFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = closure(tmp_path / "a", files, *FROM_SNAPSHOT)
    database = _database(folder, folder / files.named("4_").replace("changelog", "zip"))
    family, key, value = next(database.entries())
    database.close()
    assert family == DEFAULT
    places = iter("bcdefg")

    def found(*changes: Change) -> Fingerprint:
        monkeypatch.setattr(changelog, "parse", lambda data: Changelog((), changes))
        return fingerprint(closure(tmp_path / next(places), files, *FROM_SNAPSHOT, "5_*.changelog"))

    merged = found(Change(key, b"w", merges=True))
    assert merged.keys == KEYS_4
    assert merged.same(found(Change(key, value + b",w")))
    assert merged.same(found(Change(key, value + b"w")))
    assert not merged.same(found(Change(key, b"w")))
    replaced = found(Change(key, None), Change(key, b"w", merges=True))
    assert replaced.same(found(Change(key, b"w")))


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
    expected = fingerprint(closure(tmp_path / "d", files, *FROM_SNAPSHOT))
    assert whole == {"digests": list(expected.digests), "keys": KEYS_4}
    assert "SSTs/" in damaged["damaged"]
    assert empty["keys"] == 0
