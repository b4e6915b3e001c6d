"""`rhino verify` over files that Spark wrote: sound ones are counted, wrong ones found, whatever the index says."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from rhino.cli.verify import run_verify
from rhino_core.errors import IntegrityError, UnknownError
from tests.worker_runtime.cluster import Cluster
from tests.worker_runtime.spark_files import KEYS_4, STORE, SparkFiles, fill, spark_files
from tests.worker_runtime.support.scrub import flip_a_bit, rhino
from worker_runtime.verify import changelog, lz4_blocks
from worker_runtime.verify.verifier import StoreReport, Verdict, verify_job

needs_lz4 = pytest.mark.skipif(not lz4_blocks.available(), reason="lz4 and xxhash are not installed (extra: verify)")


@pytest.fixture
def files() -> SparkFiles:
    return spark_files()


def only_up_to(files: SparkFiles, version: int, *, without: str = "") -> SparkFiles:
    """Without later versions, and without the file that begins with `without`."""
    kept = {
        name: content
        for name, content in files.content.items()
        if name.startswith("SSTs/") or (int(name.partition("_")[0]) <= version and not (without and name == without))
    }
    return SparkFiles(kept, files.lineage)


async def verified(folder: Path, files: SparkFiles) -> StoreReport:
    await fill(folder, files)
    (report,) = verify_job(folder, STORE.job)
    return report


def altered(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


async def test_a_snapshot_is_opened_and_its_keys_are_those_that_spark_counted(
    tmp_path: Path, files: SparkFiles
) -> None:
    """Version 4 by its snapshot alone."""
    files = only_up_to(files, 4)
    report = await verified(tmp_path, SparkFiles({n: c for n, c in files.content.items() if "changelog" not in n}, {}))
    assert (report.verdict, report.keys, report.problems) == (Verdict.SOUND, KEYS_4, [])
    assert (report.version, report.changelogs) == (report.snapshot, 0)
    assert report.version is not None
    assert report.version.version == 4
    assert not list((tmp_path / "tmp").iterdir()), "nothing is left behind"


@needs_lz4
async def test_replayed_changelogs_give_as_many_keys_as_the_next_snapshot(tmp_path: Path, files: SparkFiles) -> None:
    report = await verified(tmp_path, only_up_to(files, 4, without=files.named("4_").replace("changelog", "zip")))
    assert report.snapshot is not None
    assert (report.verdict, report.snapshot.version, report.changelogs, report.keys) == (Verdict.SOUND, 1, 3, KEYS_4)


@needs_lz4
async def test_a_changelog_that_spark_could_not_read_is_bad_though_the_index_agrees(
    tmp_path: Path, files: SparkFiles
) -> None:
    name = files.named("5_")
    files.content[name] = altered(files.content[name], len(files.content[name]) // 2)
    report = await verified(tmp_path, files)
    assert report.verdict is Verdict.BAD
    assert "LZ4" in report.problems[0]


@needs_lz4
async def test_a_lineage_other_than_the_header_says_is_bad(tmp_path: Path, files: SparkFiles) -> None:
    name = files.named("5_")
    files.lineage[name] = files.lineage[name][1:] or []
    report = await verified(tmp_path, SparkFiles(files.content, files.lineage))
    assert report.verdict is Verdict.BAD


@needs_lz4
def test_cut_off_changelogs_are_refused(files: SparkFiles) -> None:
    data = files.content[files.named("5_")]
    assert len(changelog.parse(data).changes) > 100
    for length in (0, 8, 20, 21, len(data) // 2, len(data) - 1, len(data) - 21):
        with pytest.raises(IntegrityError):
            changelog.parse(data[:length])
    with pytest.raises(IntegrityError):
        changelog.parse(data + b"x")


async def test_unreadable_changelogs_are_said_to_be_unproven(
    tmp_path: Path, files: SparkFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lz4_blocks, "available", lambda: False)
    report = await verified(tmp_path, files)
    assert (report.verdict, report.keys, report.problems) == (Verdict.UNPROVEN, None, [])
    assert "rhino-state[verify]" in report.unproven[0]


@pytest.mark.parametrize("at", [100, 20_000, 55_000])
async def test_an_sst_that_rocksdb_cannot_read_is_bad_though_the_index_agrees(
    tmp_path: Path, files: SparkFiles, at: int
) -> None:
    name = files.named("SSTs/")
    files.content[name] = altered(files.content[name], at)
    report = await verified(tmp_path, files)
    assert report.verdict is Verdict.BAD
    assert "RocksDB" in report.problems[0]


async def test_a_snapshot_with_another_number_of_keys_is_bad(tmp_path: Path, files: SparkFiles) -> None:
    name = next(n for n in files.content if n.startswith("4_") and n.endswith("zip"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(files.content[name])) as old, zipfile.ZipFile(buffer, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, old.read(entry).replace(b'"numKeys":1586', b'"numKeys":1587'))
    files.content[name] = buffer.getvalue()
    report = await verified(tmp_path, files)
    assert (report.verdict, report.keys) == (Verdict.BAD, KEYS_4)
    assert str(KEYS_4 + 1) in report.problems[0]


@pytest.mark.parametrize("beginning", ["SSTs/", "5_"])
async def test_damage_on_disk_and_lost_files_are_bad(tmp_path: Path, files: SparkFiles, beginning: str) -> None:
    await fill(tmp_path, files)
    path = tmp_path / "store" / str(STORE) / files.named(beginning)
    content = path.read_bytes()
    flip_a_bit(path)
    (report,) = verify_job(tmp_path, STORE.job)
    assert "crc32c" in report.problems[0]
    path.write_bytes(content)
    (report,) = verify_job(tmp_path, STORE.job)
    assert report.verdict is not Verdict.BAD
    path.unlink()
    (report,) = verify_job(tmp_path, STORE.job)
    assert report.problems == [f"{path.name}: is in the index, but not on disk"]


async def test_a_store_that_holds_no_version_is_bad(tmp_path: Path, files: SparkFiles) -> None:
    last = files.named("5_")
    report = await verified(tmp_path, SparkFiles({last: files.content[last]}, files.lineage))
    assert (report.verdict, report.version) == (Verdict.BAD, None)


async def test_unknown_jobs_partitions_and_folders_are_named(tmp_path: Path, files: SparkFiles) -> None:
    await fill(tmp_path, files)
    for job, partitions in (("nobody", ()), (STORE.job, (7,))):
        with pytest.raises(UnknownError, match=job):
            list(verify_job(tmp_path, job, partitions))
    with pytest.raises(UnknownError, match="not the data folder"):
        list(verify_job(tmp_path / "store", STORE.job))


async def test_the_command_beside_a_running_sidecar(tmp_path: Path, files: SparkFiles) -> None:
    await fill(tmp_path / "a" / "data", files)
    async with Cluster(tmp_path / "others") as cluster:
        cluster.folder = tmp_path / "others"
        cluster.folder.mkdir()
        a = cluster.make("a")
        object.__setattr__(a.settings, "data_dir", tmp_path / "a" / "data")
        await a.start()
        command = ("verify", "--job", STORE.job, "--data-dir", str(a.settings.data_dir), "--json")
        code, out, err = await rhino(*command)
        (store,) = json.loads(out)["stores"]
        assert (code, store["partition"], store["problems"]) == (0, 1, []), err
        flip_a_bit(a.settings.data_dir / "store" / str(STORE) / files.named("SSTs/"))
        code, out, _ = await rhino(*command, "--partition", "1")
        assert (code, json.loads(out)["stores"][0]["verdict"]) == (1, "bad")
        async with a.attach() as client:
            assert files.named("SSTs/") in await client.names(STORE), "verify changes nothing"
    code, _, err = await rhino("verify", "--job", "nobody", "--data-dir", str(tmp_path / "a" / "data"))
    assert code == 3
    assert "nobody" in err


async def test_the_table_names_the_problem(
    tmp_path: Path, files: SparkFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(tmp_path, files)
    flip_a_bit(tmp_path / "store" / str(STORE) / files.named("SSTs/"))
    assert run_verify(tmp_path, STORE.job, [], as_json=False) == 1
    shown = capsys.readouterr().out
    assert "bad" in shown
    assert "crc32c" in shown
