"""A damaged index is known to be damaged: what is missing in it would be deleted from the disk, and promised by nobody.

Either everything is there that was written (or, after a loss of power, what was synced), or the start is refused.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from rhino_core.errors import AlreadyThereError, IntegrityError, RhinoError
from rhino_core.ids import Durability, Epoch, FileEntry, GroupId, StoreId, Version
from rhino_core.lineage import LONG
from rhino_core.rocksdb import scan
from tests.worker_runtime.spark_files import STORE, fill, spark_files
from worker_runtime.protocol.versions.closure import changelog_name
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.disk.files import Seal
from worker_runtime.storage.index.index import Index
from worker_runtime.storage.index.stored_file import StoredFile
from worker_runtime.storage.index.written import NAME
from worker_runtime.storage.keeping import recovery
from worker_runtime.storage.store import Store

Contents = tuple[object, ...]
STEPS = 60
BOOT, REBOOTED = "boot", "after a loss of power"


def step(index: Index, n: int) -> None:
    """One write, of each kind in turn."""
    store, group = StoreId("job", 0, n, "default"), GroupId("job", 0, n)
    lineage = tuple(Version(v, f"id{v}") for v in range(1, LONG + n))
    entry = FileEntry(store, changelog_name(Version(LONG + n, "id")), n, n, lineage=lineage, written_by="x" * 100)
    writes = (
        lambda: index.put_file(StoredFile(entry, Seal(n, n), n, visible=True, received=False)),
        lambda: index.put_epoch(group, Epoch(1, n)),
        lambda: index.put_floor(store, Version(n, "id")),
        lambda: index.drop_job(f"forgotten-{n}", Epoch(2, n), (), ()),
        lambda: index.put_durability(f"job-{n}", Durability.SYNCED),
        lambda: index.delete_files(StoreId("job", 0, n - 5, "default"), [changelog_name(Version(LONG + n - 5, "id"))]),
        lambda: index.put_metadata("newest", str(n)),
    )
    writes[n % len(writes)]()


def new_index(folder: Path) -> Index:
    folder.mkdir()
    return Index(folder, Disk(folder, 0), BOOT)


def contents(index: Index) -> Contents:
    files = sorted((str(file.entry.store), file.entry.name, tuple(file.entry.lineage)) for file in index.files())
    return files, index.epochs(), index.fences(), index.floors(), index.durabilities(), index.metadata("newest")


@dataclass(frozen=True)
class Made:
    """An index that was left, with what may be found in it by a start of this boot."""

    folder: Path
    allowed: tuple[Contents, ...]
    boot: str


@pytest.fixture(scope="module", params=["killed", "closed", "power lost"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """An index in one of three forms.

    After kill -9 its end is in RocksDB's log. After a clean end it is in tables. After a loss of power its end was
    never synced, but nothing of it is lost.
    """
    folder, left = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("left") / "index"
    index, states = Index(folder, Disk(folder, 0), BOOT), []
    for n in range(STEPS):
        step(index, n)
        states.append(contents(index))
        if n == STEPS // 2:
            index.sync()
    if request.param == "closed":
        index.close()
    shutil.copytree(folder, left)
    index.close()
    if request.param == "power lost":
        return Made(left, tuple(states[STEPS // 2 :]), REBOOTED)
    return Made(left, (states[-1],), BOOT)


def outcome(folder: Path, boot: str) -> Contents | None:
    """Returns the contents of the index, or None if it was refused and nothing has changed."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    try:
        index = Index(folder, Disk(folder, 0), boot)
    except RhinoError:
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name in before} == before
        return None
    found = contents(index)
    index.close()
    return found


def altered(made: Path, scratch: Path) -> Iterator[str]:
    """Copies of the index in `scratch`, each with one bit of one file altered, cut off, or without it."""
    chosen = random.Random(1)
    for file in sorted(path for path in made.iterdir() if path.name not in ("LOG", "LOCK") and path.stat().st_size):
        content = file.read_bytes()
        many = 60 if file.suffix in (".log", ".sst") else 8
        places = {0, len(content) - 1, *chosen.sample(range(len(content)), min(len(content), many))}
        flips = [(f"bit of {place}", place, 1 << chosen.randrange(8)) for place in sorted(places)]
        for what, place, bit in [*flips, ("half", len(content) // 2, 0), ("nothing", 0, 0), ("gone", -1, 0)]:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(made, scratch)
            data = bytearray(content if bit else content[: max(place, 0)])
            if bit:
                data[place] ^= bit
            (scratch / file.name).write_bytes(data)
            if what == "gone":
                (scratch / file.name).unlink()
            yield f"{file.name}: {what}"


def test_what_is_damaged_is_refused_or_complete(made: Made, tmp_path: Path) -> None:
    refused = 0
    for what in altered(made.folder, tmp_path / "index"):
        found = outcome(tmp_path / "index", made.boot)
        if what in (f"{NAME}: gone", f"{NAME}: nothing"):  # the documented way to go on: nothing is known then
            assert found is not None
        else:
            assert found is None or found in made.allowed, f"{what}: something is missing"
        refused += found is None
    assert refused > 30, "the log and the tables are not looked at"
    assert outcome(made.folder, made.boot) == made.allowed[-1]


def test_after_a_loss_of_power_what_was_not_synced_may_be_gone(tmp_path: Path) -> None:
    """The end of the log is cut anywhere, or torn; the file beside it says more than there is."""
    index = new_index(tmp_path / "made")
    for n in range(20):
        step(index, n)
    index.sync()
    synced = contents(index)
    (log,) = (tmp_path / "made").glob("*.log")
    before = log.stat().st_size
    for n in range(20, 40):
        step(index, n)
    after = log.stat().st_size
    for size in (before, before + 1, (before + after) // 2, after - 1):
        for boot, loses in ((REBOOTED, False), (BOOT, True)):
            shutil.copytree(tmp_path / "made", tmp_path / "cut")
            (tmp_path / "cut" / log.name).write_bytes(log.read_bytes()[:size])
            found = outcome(tmp_path / "cut", boot)
            assert (found is None) == loses, "a process that was killed loses nothing"
            assert found is None or size > before or found == synced
            assert found is None or outcome(tmp_path / "cut", REBOOTED) == found, "what is gone is required again"
            shutil.rmtree(tmp_path / "cut")
    shutil.copytree(tmp_path / "made", tmp_path / "cut")
    (tmp_path / "cut" / log.name).write_bytes(log.read_bytes()[: before - 1])
    assert outcome(tmp_path / "cut", REBOOTED) is None
    index.close()


def test_a_killed_process_leaves_a_torn_end_or_more_than_was_counted(tmp_path: Path) -> None:
    index = new_index(tmp_path / "made")
    step(index, 1)
    counted, first = (tmp_path / "made" / NAME).read_bytes(), contents(index)
    (log,) = (tmp_path / "made").glob("*.log")
    before = log.stat().st_size
    index.put_metadata("newest", "x" * 300)
    both, after = contents(index), log.stat().st_size
    for size, expected in ((before, first), (before + 3, first), (after - 1, first), (after, both)):
        shutil.copytree(tmp_path / "made", tmp_path / "torn")
        (tmp_path / "torn" / NAME).write_bytes(counted)
        (tmp_path / "torn" / log.name).write_bytes(log.read_bytes()[:size])
        assert outcome(tmp_path / "torn", BOOT) == expected
        shutil.rmtree(tmp_path / "torn")
    index.close()


def test_what_was_flushed_by_other_means_is_required_after_a_reboot_too(tmp_path: Path) -> None:
    index = new_index(tmp_path / "made")
    step(index, 1)
    index.on_disk(index.sequence_number())
    shutil.copytree(tmp_path / "made", tmp_path / "left")
    index.close()
    (log,) = (tmp_path / "left").glob("*.log")
    log.write_bytes(b"")
    assert outcome(tmp_path / "left", REBOOTED) is None


def test_an_index_of_a_former_version_opens_and_goes_back_to_it(tmp_path: Path) -> None:
    former = Rdict(str(tmp_path), Options(raw_mode=True))
    former[b"m/newest"] = b"1"
    former.close()
    index = Index(tmp_path, Disk(tmp_path, 0), BOOT)
    assert index.metadata("newest") == "1"
    index.put_metadata("newest", "2")
    index.close()
    former = Rdict(str(tmp_path), Options(raw_mode=True))
    former[b"m/newest"] = b"3"
    former.close()
    index = Index(tmp_path, Disk(tmp_path, 0), BOOT)
    assert index.metadata("newest") == "3"
    with pytest.raises(AlreadyThereError, match="another sidecar"):
        Index(tmp_path, Disk(tmp_path, 0), BOOT)
    index.close()


def damage(index: Path) -> None:
    """In the middle of what was written: of the log of a killed process, or in the first block of a table."""
    for path in (*index.glob("*.sst"), *index.glob("*.log")):
        content = bytearray(path.read_bytes())
        if content:
            content[20 if path.suffix == ".sst" else len(content) // 2] ^= 0xFF
            path.write_bytes(content)


def stored(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "store").rglob("*") if path.is_file())


@pytest.mark.parametrize("way", ["killed", "closed"])
async def test_a_store_with_a_damaged_index_does_not_open_and_loses_no_file(way: str, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    await fill(folder, spark_files())
    if way == "closed":
        db = Rdict(str(folder / "index"), Options(raw_mode=True))
        db.flush()
        db.close()
    before = stored(folder)
    damage(folder / "index")
    for _ in range(2):
        with pytest.raises(IntegrityError, match=r"index is damaged.*--empty-store.*acknowledged"):
            Store.open("a", folder, 0)
    assert stored(folder) == before
    assert str(STORE.job) in str(before[0])
    store = Store.open("a", folder, 0, empty_store=True)
    assert (store.files.entries(), stored(folder)) == ([], [])
    store.close()
    Store.open("a", folder, 0).close()


async def test_what_can_be_read_of_a_damaged_index_is_another_life_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = Store.open("a", tmp_path / "made", 0), tmp_path / "killed"
    for n in range(1, 21):
        inbox = whole.layout.inbox / "file"
        inbox.write_bytes(b"bytes")
        await whole.uploads.take_over(STORE, changelog_name(Version(n, "id")), inbox)
    shutil.copytree(tmp_path / "made", killed)
    whole.close()
    damage(killed / "index")
    (killed / "index" / NAME).unlink()

    def cut(*arguments: object) -> str:
        raise OSError("killed at this moment")

    monkeypatch.setattr(recovery, "find_incarnation", cut)
    with pytest.raises(OSError, match="killed"):
        Store.open("a", killed, 0)
    monkeypatch.undo()
    left = Store.open("a", killed, 0)
    assert left.incarnation != whole.incarnation, "the manager would take it for whole"
    assert 0 < len(left.files.entries()) < 20
    left.close()
    again = Store.open("a", killed, 0)
    assert again.incarnation == left.incarnation
    again.close()


def test_scan_raises_where_the_plain_iterator_ends_silently(tmp_path: Path) -> None:
    db = Rdict(str(tmp_path), Options(raw_mode=True))
    for number in range(10):
        db[b"%d" % number] = b"value"
    db.flush()
    assert [key for key, _ in scan(db, b"7")] == [b"7", b"8", b"9"]
    db.close()
    damage(tmp_path)
    db = Rdict(str(tmp_path), Options(raw_mode=True))
    with pytest.raises(Exception, match=r"(?i)corruption"):
        list(scan(db))
    db.close()
