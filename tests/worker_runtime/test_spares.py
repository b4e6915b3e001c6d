"""Files made ahead: given once each, made again in the background, never in the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino.ids import FileEntry, StoreId
from worker_runtime.storage import spares
from worker_runtime.storage.spares import COUNT, Spares
from worker_runtime.storage.store import Store

STORE = StoreId("job", 0, 3, "default")


class Made:
    def __init__(self, folder: Path) -> None:
        self.folder, self.due = folder, list[Callable[[], None]]()
        self.spares = Spares(folder, self.due.append)

    def work(self) -> None:
        while self.due:
            self.due.pop()()


def test_each_is_given_once_and_others_are_made_later(tmp_path: Path) -> None:
    made = Made(tmp_path)
    assert made.spares.take() is None, "nothing is made until somebody asks"
    assert made.spares.take() is None
    assert len(made.due) == 1
    made.work()
    given = [made.spares.take() for _ in range(COUNT)]
    assert len(set(given)) == COUNT
    assert made.spares.take() is None
    for one in given:
        assert one is not None
        path, fd = one
        os.write(fd, b"x")
        os.close(fd)
        assert path.read_bytes() == b"x"
    made.work()
    assert made.spares.take() is not None
    made.spares.close()
    made.work()
    assert made.spares.take() is None


def test_a_disk_that_takes_none_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(tmp_path)

    def fail(path: Path) -> int:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(spares, "create", fail)
        assert made.spares.take() is None
        made.work()
        assert made.spares.take() is None
    made.work()
    assert made.spares.take() is not None
    made.spares.close()


def test_a_folder_in_which_files_are_slow_to_make_is_left_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path)
    took_s = 0.0

    def create_slowly(path: Path) -> int:
        nonlocal took_s
        took_s += 2 * spares.SLOW_S
        return create(path)

    create = spares.create
    monkeypatch.setattr(time, "thread_time", lambda: took_s)

    def folders_of(count: int) -> list[Path]:
        given = []
        for _ in range(count):
            if (spare := made.spares.take()) is not None:
                given.append(spare[0].parent)
                _take(spare)
            made.work()
        return given

    assert len(set(folders_of(3 * spares.STAY))) == 1, "quick"
    monkeypatch.setattr(spares, "create", create_slowly)
    used = folders_of(3 * spares.STAY)
    assert 2 < len(set(used)) <= 4
    assert all(used.count(folder) <= spares.STAY + COUNT for folder in set(used) - {used[0], used[-1]})
    assert {path for path in tmp_path.iterdir() if path.is_dir()} >= {used[-1]}
    assert len(list(tmp_path.iterdir())) <= 2, "the others were empty"
    made.spares.close()
    assert not list(tmp_path.iterdir())


def _take(spare: tuple[Path, int]) -> None:
    path, fd = spare
    os.close(fd)
    path.unlink()


async def test_received_files_are_whole_with_and_without_and_nothing_is_left(tmp_path: Path) -> None:
    store = Store.open("a", tmp_path, 0)
    for number in range(3 * COUNT):
        content = bytes([number]) * 10
        entry = FileEntry(STORE, f"SSTs/{number:06d}-x.sst", 10, crc32c(content))
        await store.receive_whole(entry, [content])
        assert store.path(entry).read_bytes() == content
    left = tmp_path / "spare" / "left by a process that was killed"
    left.touch()
    store.close()
    assert list(left.parent.iterdir()) == [left]
    Store.open("a", tmp_path, 0).close()
    assert not list((tmp_path / "spare").iterdir())
