"""Names on rhino://, and query checkpoints as `rhino adopt` reads and rewrites them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rhino import rhino_checkpoint
from rhino_core.errors import IntegrityError, InvalidRequestError, InvalidSettingError, PreconditionError, UnknownError
from rhino_core.ids import StoreId, StoreVersion, Version
from spark_connector.checkpoint import user_location
from spark_connector.query_checkpoint import JOIN_STORES, PROVIDER_KEY, QueryCheckpoint, replace_file
from tests.spark_connector.support.checkpoint import RHINO, STOCK, make


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("/ckpt/q", "rhino://file/ckpt/q"),
        (Path("/ckpt/a:b"), "rhino://file/ckpt/a:b"),
        ("file:///ckpt/q", "rhino://file/ckpt/q"),
        ("file:/ckpt/q", "rhino://file/ckpt/q"),
        ("hdfs://namenode:8020/q", "rhino://hdfs@namenode:8020/q"),
        ("s3a://my_bucket/q", "rhino://s3a@my_bucket/q"),
        ("/ckpt/run#1", "rhino://file/ckpt/run#1"),
        ("/ckpt/what?", "rhino://file/ckpt/what?"),
        ("hdfs://n:1/q?a=b#c%20 d", "rhino://hdfs@n:1/q?a=b#c%20 d"),
        ("abfss://c@a.dfs.core.windows.net/q", "rhino://abfss@c@a.dfs.core.windows.net/q"),
    ],
)
def test_a_location_on_rhino(location: str | Path, name: str) -> None:
    assert rhino_checkpoint(location) == name


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("rhino://file/ckpt/a b", "file:/ckpt/a b"),
        ("rhino://hdfs@namenode:8020/q", "hdfs://namenode:8020/q"),
        ("rhino://abfss@c@a.dfs.core.windows.net/q", "abfss://c@a.dfs.core.windows.net/q"),
        ("file:/ckpt/q", "file:/ckpt/q"),
        ("hdfs://namenode:8020/q", "hdfs://namenode:8020/q"),
    ],
)
def test_a_location_on_rhino_is_a_place_of_the_user(location: str, place: str) -> None:
    assert user_location(location) == place


@pytest.mark.parametrize("location", ["rhino://file/q", "RHINO://file/q", "relative/q", "s3a://bucket"])
def test_a_wrong_location_is_named(location: str) -> None:
    with pytest.raises(InvalidSettingError, match=location):
        rhino_checkpoint(location)


def test_the_newest_versions_of_all_stores(tmp_path: Path) -> None:
    checkpoint = make(tmp_path, {"0": [["a"], ["b"]], "1": [["c", "d", "e", "f"]]}, batches=3)
    logged = checkpoint.logged()
    assert logged.batch_id == 2
    expected = [("0", 0, "default", "a"), ("0", 1, "default", "b")]
    expected += [("1", 0, name, checkpoint_id) for name, checkpoint_id in zip(JOIN_STORES, "cdef", strict=True)]
    assert logged.versions == tuple(
        StoreVersion(StoreId("job-1", int(operator), partition, name), Version(3, checkpoint_id))
        for operator, partition, name, checkpoint_id in expected
    )
    assert checkpoint.store_folder(logged.versions[0].store) == tmp_path / "state/0/0"
    assert checkpoint.store_folder(logged.versions[2].store) == tmp_path / "state/1/0" / JOIN_STORES[0]


def test_the_provider_is_rewritten_with_a_backup(tmp_path: Path) -> None:
    checkpoint = make(tmp_path, {"0": [["a"]]})
    before = (tmp_path / "offsets" / "1").read_text()
    backup = checkpoint.back_up()
    checkpoint.rewrite_provider(STOCK, RHINO)
    after = (tmp_path / "offsets" / "1").read_text()
    assert checkpoint.provider() == RHINO
    assert (backup / "offsets" / "1").read_text() == before
    assert not (tmp_path / "offsets" / ".1.crc").exists()
    fields = json.loads(before.split("\n")[1])
    fields["conf"][PROVIDER_KEY] = RHINO
    assert json.loads(after.split("\n")[1]) == fields
    assert (after.split("\n")[0], after.split("\n")[2:]) == (before.split("\n")[0], before.split("\n")[2:])


def test_format_1_says_why_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match=r"format 1.*overwrite.*--to-format 2"):
        make(tmp_path, {}).logged()
    with pytest.raises(PreconditionError, match="format 1"):
        make(tmp_path / "old", {"0": [["a"]]}, log="v1").logged()


def test_a_log_that_changed_just_now_means_a_driver(tmp_path: Path) -> None:
    checkpoint = make(tmp_path, {"0": [["a"]]})
    with pytest.raises(PreconditionError, match="a driver may be running"):
        checkpoint.check_idle(30)
    for path in (*(tmp_path / "offsets").iterdir(), *(tmp_path / "commits").iterdir()):
        os.utime(path, (time.time() - 60,) * 2)
    checkpoint.check_idle(30)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UnknownError, match="no file `metadata`"):
        QueryCheckpoint(tmp_path)
    with pytest.raises(InvalidRequestError, match="mount the file system"):
        QueryCheckpoint(Path("hdfs:/q"))
    checkpoint = make(tmp_path / "q", {"0": [["a"]]})
    (tmp_path / "q" / "commits" / "1").write_text("v2\n{")
    with pytest.raises(IntegrityError, match="commits/1"):
        checkpoint.logged()
    (tmp_path / "q" / "commits" / "1").write_text('v2\n{"stateUniqueIds": {"0": [["a", "b"]]}}')
    with pytest.raises(IntegrityError, match="2 stores in one partition"):
        checkpoint.logged()


def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    path, other = tmp_path / "0", tmp_path / "other"
    for name in ("0", "other", ".0.crc"):
        (tmp_path / name).write_text("former")
    path.with_name(".0.rhino.tmp").symlink_to(other)
    former = os.umask(0o022)
    try:
        replace_file(path, b"new")
    finally:
        os.umask(former)
    assert (path.read_text(), other.read_text()) == ("new", "former")
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o644, "other users of the checkpoint read it, as what Spark writes"
    assert not (tmp_path / ".0.crc").exists()
