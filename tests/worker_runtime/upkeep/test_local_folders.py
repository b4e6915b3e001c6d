"""Folders that killed executors have left, and those of anybody else. Executors are processes that hold real locks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker_runtime.cluster import Cluster
from worker_runtime.upkeep import local_folders
from worker_runtime.upkeep.local_folders import LOCK, LocalFolders

EXECUTOR = """
import fcntl, os, signal, sys
for folder in sys.argv[1:]:
    fresh = folder + ".rhino-lock.new"
    lock = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    fcntl.lockf(lock, fcntl.LOCK_EX)
    os.rename(fresh, folder + ".rhino-lock")
print(flush=True)
signal.pause()
"""


@contextlib.contextmanager
def executor(*folders: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a lock in each folder; a folder is made with a store in it."""
    for folder in folders:
        (folder / "0c").mkdir(parents=True)
        (folder / "0c" / "000004.sst").write_bytes(b"state")
    command = [sys.executable, "-c", EXECUTOR, *map(str, folders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix != LOCK}


def lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + LOCK)


def test_the_folders_of_a_killed_executor_go_and_those_of_a_live_one_stay(tmp_path: Path) -> None:
    mine, others = [tmp_path / name for name in ("blockmgr-1", "spark-1")], [tmp_path / "blockmgr-2"]
    folders = LocalFolders(tmp_path)
    with executor(*mine) as killed, executor(*others) as alive:
        folders.look()
        folders.look()
        assert left_in(tmp_path) == {"blockmgr-1", "spark-1", "blockmgr-2"}
        alive.send_signal(signal.SIGSTOP)  # as long as a JVM may pause, and longer
        killed.kill()
        killed.wait()
        folders.look()
        assert left_in(tmp_path) == {"blockmgr-2"}
        assert (tmp_path / "blockmgr-2" / "0c" / "000004.sst").exists()


def test_another_sidecar_process_removes_what_the_former_one_has_seen(tmp_path: Path) -> None:
    with executor(tmp_path / "spark-1"):
        LocalFolders(tmp_path).look()
    LocalFolders(tmp_path).look()
    assert not left_in(tmp_path)


def test_a_folder_whose_lock_was_never_seen_held_stays(tmp_path: Path) -> None:
    """So it is where the sidecar cannot see the locks of other containers."""
    with executor(tmp_path / "spark-1"):
        pass
    LocalFolders(tmp_path).look()
    assert left_in(tmp_path) == {"spark-1"}


def test_folders_of_drivers_and_of_other_sparks_have_no_lock_and_stay(tmp_path: Path) -> None:
    (tmp_path / "spark-1").mkdir()
    (tmp_path / "blockmgr-1").mkdir()
    (tmp_path / "spark-file").write_text("")
    LocalFolders(tmp_path).look()
    assert left_in(tmp_path) == {"spark-1", "blockmgr-1", "spark-file"}


def test_nothing_goes_that_has_another_name_or_lies_elsewhere(tmp_path: Path) -> None:
    """The sidecar's own data, a link to a folder elsewhere, and a lock that is a link."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    data, target, linked = here / "data", elsewhere / "spark-1", here / "spark-lock"
    with executor(data, target, linked):
        pass
    for folder in (data, target, linked):
        lock_of(folder).write_bytes(local_folders.SEEN)
    (here / "spark-link").symlink_to(target)
    lock_of(target).rename(lock_of(here / "spark-link"))
    lock_of(linked).rename(elsewhere / "lock")
    lock_of(linked).symlink_to(elsewhere / "lock")
    LocalFolders(here).look()
    assert left_in(here) == {"data", "spark-link", "spark-lock"}
    assert (target / "0c" / "000004.sst").exists()
    assert lock_of(data).exists()


def test_a_removal_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with executor(tmp_path / "spark-1"):
        LocalFolders(tmp_path).look()

    def cut_off(name: str, dir_fd: int) -> None:
        raise OSError("no room for the journal")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", cut_off)
        LocalFolders(tmp_path).look()
    assert left_in(tmp_path) == {"spark-1"}
    LocalFolders(tmp_path).look()
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_folder_that_spark_has_removed_goes(tmp_path: Path) -> None:
    with executor(tmp_path / "spark-1"):
        LocalFolders(tmp_path).look()
        shutil.rmtree(tmp_path / "spark-1")
    LocalFolders(tmp_path).look()
    assert not list(tmp_path.iterdir())


def test_a_link_in_a_folder_goes_and_its_target_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("")
    with executor(tmp_path / "spark-1"):
        (tmp_path / "spark-1" / "link").symlink_to(kept)
        LocalFolders(tmp_path).look()
    LocalFolders(tmp_path).look()
    assert left_in(tmp_path) == {"kept"}
    assert (kept / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("given", ["spark-1", f"spark-1{LOCK}"])
def test_a_folder_of_another_user_stays(tmp_path: Path, given: str) -> None:
    with executor(tmp_path / "spark-1"):
        LocalFolders(tmp_path).look()
    os.chown(tmp_path / given, 65534, 65534)
    LocalFolders(tmp_path).look()
    assert left_in(tmp_path) == {"spark-1"}


def test_a_folder_that_is_not_there_is_one_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folders = LocalFolders(tmp_path / "nowhere")
    folders.look()
    folders.look()
    assert [record.message for record in caplog.records] == ["cannot look for folders of killed executors"]


@pytest.mark.parametrize("told", [True, False])
async def test_a_sidecar_removes_them_if_it_is_told_to(tmp_path: Path, told: bool) -> None:
    local = tmp_path / "local"
    with executor(local / "spark-left"):
        LocalFolders(local).look()
    async with asyncio.timeout(100), Cluster(tmp_path) as cluster:
        with executor(local / "spark-live", local / "blockmgr-live") as killed:
            await cluster.start("a", spark_local_dir=str(local) if told else "")
            if not told:
                assert left_in(local) == {"spark-left", "spark-live", "blockmgr-live"}
                return
            while (local / "spark-left").exists() or not lock_of(local / "spark-live").read_bytes():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert left_in(local) == {"spark-live", "blockmgr-live"}
            killed.kill()
            killed.wait()
            while left_in(local):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
