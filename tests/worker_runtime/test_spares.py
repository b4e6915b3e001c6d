"""Files made ahead: given once each, made again in the background, never in the way."""

from __future__ import annotations

import os
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
        self.folder, self.names, self.due = folder, iter(range(1000)), list[Callable[[], None]]()
        self.spares = Spares(lambda: folder / str(next(self.names)), self.due.append)

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
