"""Files made ahead: given once each, made again in the background, never in the way."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_core.ids import FileEntry, StoreId
from worker_runtime.storage.disk.allocation import preallocated
from worker_runtime.storage.disk.allocation.preallocated import COUNT, PreallocatedFiles
from worker_runtime.storage.disk.files import create
from worker_runtime.storage.store import Store

STORE = StoreId("job", 0, 3, "default")


class Made:
    def __init__(self, folder: Path) -> None:
        self.folder, self.due = folder, list[Callable[[], None]]()
        self.files = PreallocatedFiles(folder, self.due.append)

    def work(self) -> None:
        while self.due:
            self.due.pop()()


def test_each_is_given_once_and_others_are_made_later(tmp_path: Path) -> None:
    made = Made(tmp_path)
    assert made.files.take() is None, "nothing is made until somebody asks"
    assert made.files.take() is None
    assert len(made.due) == 1
    made.work()
    given = [made.files.take() for _ in range(COUNT)]
    assert len(set(given)) == COUNT
    assert made.files.take() is None
    for one in given:
        assert one is not None
        path, fd = one
        os.write(fd, b"x")
        os.close(fd)
        assert path.read_bytes() == b"x"
    made.work()
    assert made.files.take() is not None
    made.files.close()
    made.work()
    assert made.files.take() is None


def test_a_disk_that_takes_none_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path)

    def fail(path: Path) -> int:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(preallocated, "create", fail)
        assert made.files.take() is None
        made.work()
        assert made.files.take() is None
    made.work()
    assert made.files.take() is not None
    made.files.close()


def test_a_folder_in_which_files_are_slow_to_make_is_left_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path)
    took_s = 0.0

    def create_slowly(path: Path) -> int:
        nonlocal took_s
        took_s += 2 * preallocated.SLOW_S
        return create(path)

    monkeypatch.setattr(time, "thread_time", lambda: took_s)

    def folders_of(count: int) -> list[Path]:
        given = []
        for _ in range(count):
            if (file := made.files.take()) is not None:
                given.append(file[0].parent)
                _take(file)
            made.work()
        return given

    assert len(set(folders_of(3 * preallocated.STAY))) == 1, "quick"
    monkeypatch.setattr(preallocated, "create", create_slowly)
    used = folders_of(3 * preallocated.STAY)
    assert 2 < len(set(used)) <= 4
    assert all(used.count(folder) <= preallocated.STAY + COUNT for folder in set(used) - {used[0], used[-1]})
    assert {path for path in tmp_path.iterdir() if path.is_dir()} >= {used[-1]}
    assert len(list(tmp_path.iterdir())) <= 2, "the others were empty"
    made.files.close()
    assert not list(tmp_path.iterdir())


def test_a_folder_in_which_files_are_made_while_it_closes_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path)

    def close_meanwhile(path: Path) -> int:
        fd = create(path)
        made.files.close()
        return fd

    monkeypatch.setattr(preallocated, "create", close_meanwhile)
    assert made.files.take() is None
    made.work()
    assert not list(tmp_path.iterdir())


def _take(file: tuple[Path, int]) -> None:
    path, fd = file
    os.close(fd)
    path.unlink()


async def test_received_files_are_whole_with_and_without_and_nothing_is_left(tmp_path: Path) -> None:
    store = Store.open("a", tmp_path, 0)
    for number in range(3 * COUNT):
        content = bytes([number]) * 10
        entry = FileEntry(STORE, f"SSTs/{number:06d}-x.sst", 10, crc32c(content))
        await store.received.receive_whole(entry, [content])
        assert store.files.path(entry).read_bytes() == content
    left = tmp_path / "spare" / uuid.uuid4().hex / uuid.uuid4().hex  # by a process that was killed
    left.parent.mkdir()
    left.touch()
    store.close()
    assert list((tmp_path / "spare").iterdir()) == [left.parent]
    Store.open("a", tmp_path, 0).close()
    assert not list((tmp_path / "spare").iterdir())
