"""What a sidecar does to the folder that it is given: it keeps to its own files, and to its own user."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest

from rhino_core.errors import AlreadyThereError, NoSpaceError, PreconditionError
from rhino_core.setting import MIB
from tests.worker_runtime.cluster import Cluster, changelog_bytes
from tests.worker_runtime.scenario import STORE, version
from tests.worker_runtime.tmpfs import fill, tmpfs
from worker_runtime.protocol.versions.closure import changelog_name
from worker_runtime.storage.store import Store

NAME = changelog_name(version(1))


async def filled(folder: Path) -> Store:
    store = Store.open("me", folder, 0)
    source = store.layout.inbox / "new"
    source.write_bytes(b"one")
    await store.uploads.take_over(STORE, NAME, source)
    return store


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_home_folder_is_left_as_it_is(tmp_path: Path) -> None:
    for name in ("store/photos/1.jpg", "inbox/mail", "tmp/work/draft", "spare/key", "partial/x", "index/book"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("precious")
    before = names(tmp_path)
    with pytest.raises(PreconditionError, match="no folder of a Rhino sidecar"):
        Store.open("me", tmp_path, 0)
    assert names(tmp_path) == before


async def test_in_its_own_folder_it_deletes_what_it_has_made_and_nothing_else(tmp_path: Path) -> None:
    (await filled(tmp_path)).close()
    own = [
        *(f"{folder}/{'0' * 32}/file" for folder in ("inbox", "tmp", "spare")),
        f"tmp/{'1' * 32}",
        f"store/{STORE}/2_orphan.changelog",
        f"store/{STORE}/SSTs/000001-x.sst",
    ]
    others = ["inbox/mail", "tmp/draft", "spare/k/key", "store/photos/1.jpg", f"store/{STORE}/notes.txt", "letter"]
    for name in (*own, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    store = Store.open("me", tmp_path, 0)
    assert [name for name in own if (tmp_path / name).exists()] == []
    assert [name for name in others if not (tmp_path / name).exists()] == []
    assert store.files.record(STORE, NAME) is not None
    store.close()


async def test_a_linked_store_is_refused(tmp_path: Path) -> None:
    (await filled(tmp_path / "data")).close()
    (tmp_path / "data/store").rename(tmp_path / "elsewhere")
    (tmp_path / "data/store").symlink_to(tmp_path / "elsewhere")
    before = names(tmp_path / "elsewhere")
    with pytest.raises(PreconditionError, match="neither a link nor a file"):
        Store.open("me", tmp_path / "data", 0)
    assert names(tmp_path / "elsewhere") == before


async def test_a_lost_index_stops_the_start_until_the_files_may_go(tmp_path: Path) -> None:
    former = await filled(tmp_path)
    former.close()
    shutil.rmtree(tmp_path / "index")
    for _ in range(2):  # a refused start makes no index, with which the next one would go on
        with pytest.raises(PreconditionError, match=rf"index is lost.*{NAME}.*--empty-store"):
            Store.open("me", tmp_path, 0)
    assert (tmp_path / "store" / str(STORE) / NAME).read_bytes() == b"one"
    emptied = Store.open("me", tmp_path, 0, empty_store=True)
    assert emptied.files.entries() == []
    assert emptied.incarnation != former.incarnation
    assert list((tmp_path / "store").iterdir()) == []
    emptied.close()


async def test_empty_store_deletes_nothing_while_the_index_is_there(tmp_path: Path) -> None:
    (await filled(tmp_path)).close()
    store = Store.open("me", tmp_path, 0, empty_store=True)
    assert store.files.record(STORE, NAME) is not None
    store.close()


async def test_a_path_that_has_lock_in_it_says_nothing_about_another_sidecar(tmp_path: Path) -> None:
    folder = tmp_path / "blocks"
    store = await filled(folder)
    with pytest.raises(AlreadyThereError):
        Store.open("me", folder, 0)
    store.close()
    (folder / "index" / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(Exception, match="MANIFEST-999999") as failed:
        Store.open("me", folder, 0)
    assert not isinstance(failed.value, AlreadyThereError)


async def test_a_disk_that_rubbish_has_filled_can_be_started_from(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 16) as disk:
        folder = disk / "node"
        (await filled(folder)).close()
        rubbish = folder / "inbox" / ("0" * 32) / "never-taken"
        rubbish.parent.mkdir()
        rubbish.write_bytes(bytes(4 * MIB))
        fill(disk, 0)
        assert os.statvfs(disk).f_bavail == 0
        store = Store.open("me", folder, 0)
        assert store.files.record(STORE, NAME) is not None
        assert not rubbish.exists()
        store.index.put_metadata("key", "value")
        store.close()
        rubbish.parent.mkdir()
        fill(disk, 0)
        with pytest.raises(NoSpaceError, match="index cannot be opened"):  # there is nothing to clear
            Store.open("me", folder, 0)


async def test_nobody_else_reads_state(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        async with asyncio.timeout(60), Cluster(tmp_path) as cluster:
            a, b = await cluster.start("a", "b")
            cluster.manager.set_group(STORE.group, "a", "b", required=2)
            async with a.attach() as client:
                await client.commit(STORE, version(1), changelog_bytes(1), [])
                await client.add(STORE, "SSTs/000001-x.sst", b"x" * 2 * MIB)
                for process in (a, b):
                    folder = process.settings.data_dir
                    assert folder.stat().st_mode & 0o077 == 0
                    for path in (*folder.iterdir(), *(folder / "store").rglob("*"), *(folder / "inbox").rglob("*")):
                        closed = path.stat().st_mode & 0o077 == 0
                        inside = path.is_dir() and path.parent != folder  # a closed folder leads there
                        assert closed or inside, f"{path} {stat.filemode(path.stat().st_mode)}"
                    assert process.settings.socket.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(former)
