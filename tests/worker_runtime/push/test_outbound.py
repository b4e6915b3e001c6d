"""A file on its way out: what is sent of one that is damaged."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from rhino_core.ids import Epoch, FileEntry, Lane, StoreId, Worker
from rhino_pb import peer_pb2
from worker_runtime.protocol import events as ev
from worker_runtime.push.connection import ThreadSender
from worker_runtime.push.core.framing import packed
from worker_runtime.push.core.records import PlainSealer
from worker_runtime.push.core.sender import PushSender, Unblocked, Welcomed
from worker_runtime.push.outbound import CheckedFile, Damaged, cached_bytes, send_part

STORE = StoreId("job", 0, 3, "default")
CONTENT = bytes(range(256)) * 64


def offer(content: bytes) -> ev.OfferFile:
    entry = FileEntry(STORE, "SSTs/000001-x.sst", len(CONTENT), crc32c(content))
    b = Worker("b", "1", "127.0.0.1", "127.0.0.1:1")
    return ev.OfferFile(b, entry, Epoch(1, 1), (b,), Lane.BULK)


def reply(**alternative: Any) -> bytes:
    return packed(peer_pb2.PushReply(**alternative))


def sent(path: Path, offered: ev.OfferFile, *parts: int, resume_at: int = 0) -> int:
    """Bytes that arrive, frames included, when the file is sent in these parts; negative when it is found damaged."""
    ours, theirs = socket.socketpair()
    thread = ThreadSender(ours, PlainSealer())
    core = PushSender("b")
    core.receive(reply(welcome=peer_pb2.PushWelcome(credit_bytes=len(CONTENT))))
    assert core.next_event() == Welcomed()
    file = core.begin(offered, ask_offset=resume_at > 0)
    checked = CheckedFile(offered.entry, os.open(path, os.O_RDONLY))
    damaged = False
    with ours, theirs:
        try:
            if resume_at:
                core.receive(reply(resume=peer_pb2.PushResume(transfer=1, offset=resume_at)))
                assert core.next_event() == Unblocked()
                file.skip_known()
            while checked.checked_bytes < file.offset:
                checked.check(3000, file.offset)
            for size in parts:
                send_part(thread, checked, core.part(file, size), memoryview(bytearray(4096)))
            assert file.done
        except Damaged:
            damaged = True
        finally:
            checked.close()
        ours.shutdown(socket.SHUT_WR)
        count = 0
        while data := theirs.recv(65536):
            count += len(data)
    return -count if damaged else count


@pytest.mark.parametrize("parts", [(16384,), (8192, 8192), (16000, 384)])
def test_the_last_part_of_a_damaged_file_does_not_leave(tmp_path: Path, parts: tuple[int, ...]) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    assert sent(path, offer(CONTENT), *parts) > len(CONTENT)
    path.write_bytes(b"x" + CONTENT[1:])
    assert -len(CONTENT) < sent(path, offer(CONTENT), *parts) < 0


def test_a_damaged_small_file_does_not_leave(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    cached = cached_bytes(path, offer(CONTENT).entry)
    assert cached is not None
    assert bytes(cached) == CONTENT
    path.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(Damaged):
        cached_bytes(path, offer(CONTENT).entry)


@pytest.mark.parametrize("resume_at", [1, 3000, 8192, len(CONTENT) - 1])
@pytest.mark.parametrize("damaged_at", [0, len(CONTENT) - 1])
def test_what_is_left_of_a_damaged_file_does_not_leave(tmp_path: Path, resume_at: int, damaged_at: int) -> None:
    """The receiver has the first bytes from an attempt that broke."""
    path, left = tmp_path / "file", len(CONTENT) - resume_at
    path.write_bytes(CONTENT)
    assert left < sent(path, offer(CONTENT), left, resume_at=resume_at) < left + 200
    damaged = bytearray(CONTENT)
    damaged[damaged_at] ^= 1
    path.write_bytes(damaged)
    assert -left < sent(path, offer(CONTENT), left, resume_at=resume_at) <= 0


def test_a_file_that_has_become_shorter_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT[:4096])
    assert sent(path, offer(CONTENT), 8192, resume_at=8192) == 0, "nothing was sent"
