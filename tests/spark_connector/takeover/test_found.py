"""Conversion of former formats without Spark: names, lineages, what is refused, and interruptions."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from rhino_core import failpoints
from rhino_core.errors import IntegrityError, LostError, PreconditionError
from rhino_core.ids import FileKind, StoreId, Version
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import PROVIDER_KEY, QueryCheckpoint, replace_file
from spark_connector.query_logs import ids_of
from spark_connector.takeover import AdoptOptions, Outcome, adopt, check_released, files, former_stores, switch
from spark_connector.takeover.format1 import files_of_format_1
from spark_connector.takeover.former_stores import prefix_columns
from spark_connector.takeover.found import examine
from spark_connector.takeover.hdfs_state import HDFS_PROVIDER, former_bytes
from tests.spark_connector.support.checkpoint import make
from tests.spark_connector.support.takeover import SST, session
from tests.worker_runtime.cluster import Cluster, Process, zip_bytes
from worker_runtime.verify import changelog, lz4_blocks

STOCK, RHINO = PROVIDER_CLASSES["checkpoint"], PROVIDER_CLASSES["provider"]
STORE = StoreId("job-1", 0, 0, "default")
RECORDS = struct.pack(">i1si1si1sii", 1, b"k", 1, b"v", 1, b"d", -1, -1)  # put k, delete d, end
RECORDS_V2 = b"\x01" + struct.pack(">i1si1s", 1, b"k", 1, b"v") + b"\x00"
POINTS = [name for name in failpoints.NAMES if name.startswith("takeover.")]


def format_1(folder: Path, *, partitions: int = 1) -> QueryCheckpoint:
    """Committed batches 0 to 3. Each store has a snapshot of version 2, and changelogs of versions 3 and 4."""
    checkpoint = make(folder, {}, log="v1", batches=4)
    set_conf(checkpoint, PROVIDER_KEY, STOCK, partitions=partitions)
    for batch in range(4):
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":17}')
    for partition in range(partitions):
        store = folder / "state" / "0" / str(partition)
        (store / "SSTs").mkdir(parents=True)
        (store / SST).write_bytes(b"s" * 5000)
        (store / "2.zip").write_bytes(zip_bytes("000001-x.sst"))
        (store / "2.zip.crc").write_bytes(b"crc")
        (store / "3.changelog").write_bytes(lz4_blocks.pack(RECORDS))
        (store / "4.changelog").write_bytes(lz4_blocks.pack(b"\x00\x02v2" + RECORDS_V2))
        (store / "5.changelog").write_bytes(b"a batch that has begun")
    return checkpoint


def set_conf(checkpoint: QueryCheckpoint, key: str, value: str, *, partitions: int) -> None:
    for path in (checkpoint.folder / "offsets").iterdir():
        if path.name.isdigit():
            version, body, *rest = path.read_text().split("\n")
            fields = json.loads(body)
            fields["conf"] |= {key: value, "spark.sql.shuffle.partitions": str(partitions)}
            path.write_text("\n".join([version, json.dumps(fields), *rest]))


def run_adopt(process: Process, folder: Path, *, dry_run: bool = False) -> Outcome:
    with session(process) as attached:
        return adopt(folder, attached, AdoptOptions(to_format=2, dry_run=dry_run, idle_s=0))


def test_files_get_names_with_ids_and_changelogs_a_lineage(tmp_path: Path) -> None:
    checkpoint = format_1(tmp_path)
    (found,) = examine(checkpoint, 2).stores
    sst, snapshot, third, fourth = (file.entry for file in found.files)
    assert (sst.name, snapshot.kind, snapshot.references) == (SST, FileKind.SNAPSHOT, (SST,))
    assert [entry.version.version for entry in (snapshot, third, fourth) if entry.version] == [2, 3, 4]
    assert third.lineage == (snapshot.version,)
    assert fourth.lineage == (snapshot.version, third.version)
    assert found.version.version == fourth.version
    assert [file.gets_lineage for file in found.files] == [False, False, True, True]


def test_the_ids_are_those_of_the_content(tmp_path: Path) -> None:
    checkpoint = format_1(tmp_path, partitions=2)
    first, other = (store.version.version for store in examine(checkpoint, 2).stores)
    assert examine(checkpoint, 2).stores[0].version.version == first != other
    (tmp_path / "state" / "0" / "0" / "3.changelog").write_bytes(lz4_blocks.pack(RECORDS[:-4] * 2 + RECORDS[-4:]))
    changed, same = (store.version.version for store in examine(checkpoint, 2).stores)
    assert (changed.version, same) == (4, other)
    assert changed != first


@pytest.mark.parametrize(
    ("former", "alive"), [(RECORDS, [True, False]), (b"\x00\x02v2" + RECORDS_V2, [True])], ids=["v1", "v2"]
)
def test_a_changelog_keeps_its_records(former: bytes, alive: list[bool]) -> None:
    lineage = [Version(2, "a"), Version(3, "b")]
    parsed = changelog.parse(changelog.with_lineage(lz4_blocks.pack(former), lineage))
    assert parsed.lineage == tuple(lineage)
    assert [change.value is not None for change in parsed.changes] == alive


def test_a_lineage_that_spark_could_not_write_is_refused() -> None:
    with pytest.raises(PreconditionError, match="2000 versions is too long"):
        changelog.with_lineage(lz4_blocks.pack(RECORDS), [Version(n, "x" * 36) for n in range(2000)])


@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 100_000])
def test_packed_blocks_are_unpacked(size: int) -> None:
    content = (b"state" * 30_000)[:size]
    assert lz4_blocks.unpack(lz4_blocks.pack(content)) == content


def test_missing_files_are_counted_and_named(tmp_path: Path) -> None:
    checkpoint = format_1(tmp_path, partitions=3)
    (tmp_path / "state/0/1/3.changelog").unlink()
    (tmp_path / "state/0/2" / SST).unlink()
    with pytest.raises(LostError, match=r"(?s)2 of 3 stores do not open.*3\.changelog.*2\.zip.*000001-x\.sst"):
        examine(checkpoint, 2)
    (tmp_path / "state/0/2").rename(tmp_path / "elsewhere")
    with pytest.raises(LostError, match="1 of 3 partitions are missing, such as 2"):
        examine(checkpoint, 2)


def test_a_damaged_snapshot_or_changelog_is_named(tmp_path: Path) -> None:
    format_1(tmp_path)
    folder = tmp_path / "state/0/0"
    (folder / "4.changelog").write_bytes(lz4_blocks.pack(RECORDS)[:-5])
    with pytest.raises(IntegrityError, match="cut off"):
        files_of_format_1(folder, STORE, 4)
    (folder / "2.zip").write_bytes(b"no zip")
    with pytest.raises(IntegrityError, match=r"2\.zip"):
        files_of_format_1(folder, STORE, 4)


def test_another_codec_and_missing_packages_are_two_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "3.changelog"
    path.write_bytes(b"zstd or so")
    with pytest.raises(PreconditionError, match=r"not compressed with LZ4.*changelogCheckpointing\.enabled=false"):
        files.read_changelog(path)
    path.write_bytes(lz4_blocks.pack(RECORDS))
    assert files.read_changelog(path) == path.read_bytes()
    monkeypatch.setattr(lz4_blocks, "available", lambda: False)
    with pytest.raises(PreconditionError, match=r"pip install 'rhino-state\[verify\]'"):
        files.read_changelog(path)


async def test_state_of_format_1_is_adopted_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    checkpoint = format_1(folder, partitions=2)
    former = {name: (folder / name).read_bytes() for name in ("commits/3", "commits/2", "offsets/3", "metadata")}
    async with Cluster(tmp_path) as cluster:
        a, b = await cluster.start("a", "b")
        would = await asyncio.to_thread(run_adopt, a, folder, dry_run=True)
        assert former.items() <= {name: (folder / name).read_bytes() for name in former}.items()
        done = await asyncio.to_thread(run_adopt, a, folder)
        assert (done.stores, done.files, done.bytes, done.found) == (2, 8, would.bytes, "RocksDB, format 1")
        logged = checkpoint.logged()
        assert (logged.batch_id, checkpoint.provider()) == (3, RHINO)
        assert json.loads((folder / "commits/3").read_text().split("\n")[1])["nextBatchWatermarkMs"] == 17
        assert (folder / "commits/2").read_bytes() == former["commits/2"]
        assert {name: (Path(done.backup) / name).read_bytes() for name in former} == former
        with session(b) as attached:
            for version in logged.versions:
                attached.prepare(version)
                newest = attached.folder(version.store) / f"{version.version}.changelog"
                parsed = changelog.parse(newest.read_bytes())
                assert [item.version for item in parsed.lineage] == [2, 3]
                assert [change.key for change in parsed.changes] == [b"k"]


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm({})


@pytest.mark.usefixtures("disarmed")
@pytest.mark.parametrize("point", POINTS)
def test_an_interrupted_change_is_completed_by_the_next_call(point: str, tmp_path: Path) -> None:
    checkpoint = format_1(tmp_path)
    (found,) = examine(checkpoint, 2).stores
    commit = checkpoint.commit_with_ids(3, ids_of([found.version]))
    before = checkpoint.fingerprint()
    failpoints.arm({failpoints.VARIABLE: f"{point}=error"})
    with pytest.raises(OSError, match=point):
        switch.finish(checkpoint, switch.begin(checkpoint, 3, commit, RHINO))
    interrupted = switch.unfinished(checkpoint)
    if interrupted is None:
        complete = checkpoint.provider() == RHINO and checkpoint.logged().versions == (found.version,)
        assert complete == (point == "takeover.end.after")
        assert complete or checkpoint.fingerprint() == before
        return
    switch.finish(checkpoint, interrupted)
    assert (checkpoint.provider(), checkpoint.logged().versions) == (RHINO, (found.version,))
    assert switch.unfinished(checkpoint) is None


def test_an_interrupted_change_is_void_once_the_query_has_run(tmp_path: Path) -> None:
    checkpoint = format_1(tmp_path)
    switch.begin(checkpoint, 3, checkpoint.commit_with_ids(3, {0: [["a"]]}), RHINO)
    assert switch.unfinished(checkpoint) is not None
    replace_file(tmp_path / "offsets/4", (tmp_path / "offsets/3").read_bytes())
    assert switch.unfinished(checkpoint) is None


def test_state_of_the_hdfs_backed_provider_is_checked_before_it_is_converted(tmp_path: Path) -> None:
    checkpoint = format_1(tmp_path)
    set_conf(checkpoint, PROVIDER_KEY, HDFS_PROVIDER, partitions=1)
    with pytest.raises(PreconditionError, match="--to-format 2"):
        examine(checkpoint, None)
    with pytest.raises(LostError, match="operator 0 are not described"):
        examine(checkpoint, 2)
    (tmp_path / "state/0/_metadata").mkdir()
    described = {"stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 2, "numPartitions": 1}]}
    (tmp_path / "state/0/_metadata/metadata").write_text("v1\n" + json.dumps(described))
    assert prefix_columns(checkpoint, 0) == {"default": 2}
    with pytest.raises(LostError, match=r"missing: 1\.delta"):
        examine(checkpoint, 2)
    for name in ("2.snapshot", "3.delta", "4.delta"):
        (tmp_path / "state/0/0" / name).write_bytes(b"x" * 10)
    assert former_bytes(tmp_path / "state/0/0", 4) == 30
    found = examine(checkpoint, 2)
    assert (found.kind, found.unconverted, found.size_bytes) == ("HDFS-backed", (STORE,), 30)


def test_the_stores_of_a_join_are_in_the_order_of_the_commit_log(tmp_path: Path) -> None:
    checkpoint = format_1(tmp_path, partitions=2)
    for partition in ("0", "1"):
        for name in ("right-keyToNumValues", "left-keyWithIndexToValue", "right-keyWithIndexToValue"):
            (tmp_path / "state/1" / partition / name).mkdir(parents=True)
    with pytest.raises(IntegrityError, match="expected one, or those of a join"):
        former_stores.former_stores(checkpoint)
    for partition in ("0", "1"):
        (tmp_path / "state/1" / partition / "left-keyToNumValues").mkdir()
    names = [store.store for store in former_stores.former_stores(checkpoint) if store.operator == 1]
    sides = ["left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue"]
    assert names == sides * 2


@pytest.mark.parametrize("stored", [True, False])
def test_only_state_of_rhino_is_released(stored: bool, tmp_path: Path) -> None:
    checkpoint = make(tmp_path, {"0": [["a"]]})
    set_conf(checkpoint, PROVIDER_KEY, HDFS_PROVIDER, partitions=1)
    with pytest.raises(PreconditionError, match=r"nothing to release.*HDFSBacked"):
        check_released(tmp_path, stored=stored)
    set_conf(checkpoint, PROVIDER_KEY, RHINO, partitions=1)
    check_released(tmp_path, stored=stored)
    set_conf(checkpoint, PROVIDER_KEY, STOCK, partitions=1)
    if stored:
        check_released(tmp_path, stored=True)
    else:
        with pytest.raises(PreconditionError, match="no worker stores state of this query"):
            check_released(tmp_path, stored=False)
