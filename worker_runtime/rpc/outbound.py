"""A file on its way out: its parts as they go over the wire, read from disk and checked before they are sent.

The last part of a file whose bytes are not those of its entry does not leave: no receiver takes it for whole.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from rhino.ids import FileEntry
from rhino.rpc.convert import epoch_to_pb, file_to_pb, worker_to_pb
from rhino_pb import peer_pb2
from worker_runtime.core import events as ev
from worker_runtime.rpc.offers import Key
from worker_runtime.rpc.wire import packed, send_all
from worker_runtime.storage.files import READ_BYTES, read_cached


class Damaged(Exception):
    """The stored bytes are not those of the entry."""


@dataclass(slots=True)
class Sending:
    """A file under way. `begin`: its first frame, until that is sent."""

    transfer: int
    entry: FileEntry
    fd: int
    begin: bytes
    offset: int = 0
    crc: int = 0  # of the first `crc_to` bytes
    crc_to: int = 0
    unwanted: bool = False
    asked: bool = False  # waits for the receiver to say where to go on
    resume_at: int = 0  # said by the receiver, for the next part

    @property
    def key(self) -> Key:
        return self.entry.store, self.entry.name

    @property
    def done(self) -> bool:
        return self.unwanted or (self.offset == self.entry.size_bytes and not self.begin)

    def resumed(self, offset: int) -> None:
        """The receiver has the bytes before `offset` from an attempt that broke. A part may be on its way now."""
        self.asked = False
        self.resume_at = min(offset, self.entry.size_bytes)

    def go_on(self) -> None:
        """Between parts: to where the receiver has said."""
        self.offset = max(self.offset, self.resume_at)

    @property
    def behind(self) -> bool:
        """Bytes that the receiver has already have to be read before anything is sent (`catch_up`)."""
        return self.crc_to < self.offset

    def catch_up(self, size: int) -> None:
        """Reads up to `size` of the bytes that are not sent again. Blocks; raises Damaged, OSError."""
        end = min(self.crc_to + size, self.offset)
        buffer = memoryview(bytearray(min(size, READ_BYTES)))
        while self.crc_to < end:
            data = buffer[: end - self.crc_to]
            if os.preadv(self.fd, [data], self.crc_to) != len(data):
                raise Damaged
            self._count(data)

    def part(self, size: int) -> list[bytes | memoryview]:
        """The next `size` bytes with the frames before them. Blocks; raises Damaged, OSError."""
        data = memoryview(bytearray(size))
        if os.preadv(self.fd, [data], self.offset) != size:
            raise Damaged
        return self._framed(data)

    def cached_part(self, size: int) -> list[bytes | memoryview] | None:
        """As `part`, when the bytes are in the page cache, else None."""
        data = memoryview(bytearray(size))
        return self._framed(data) if read_cached(self.fd, data, self.offset) else None

    def head(self, size: int) -> bytes:
        """The frames that go before the next `size` bytes."""
        head = self.begin
        if size:
            message = peer_pb2.PushData(transfer=self.transfer, offset=self.offset)
            head += packed(peer_pb2.PushFrame(data=message), size)
        self.begin = b""
        return head

    def passed(self, data: memoryview) -> memoryview:
        """The next bytes. Raises Damaged."""
        self.offset += len(data)
        self._count(data)
        return data

    def _count(self, data: memoryview) -> None:
        self.crc = crc32c(data, self.crc)
        self.crc_to += len(data)
        if self.crc_to == self.entry.size_bytes and self.crc != self.entry.crc32c:
            raise Damaged

    def _framed(self, data: memoryview) -> list[bytes | memoryview]:
        return [self.head(len(data)), self.passed(data)]


def begin_frame(transfer: int, offer: ev.OfferFile, *, ask_offset: bool) -> bytes:
    begin = peer_pb2.PushBegin(
        transfer=transfer,
        file=file_to_pb(offer.entry),
        epoch=epoch_to_pb(offer.epoch),
        chain=[worker_to_pb(worker) for worker in offer.chain],
        ask_offset=ask_offset,
    )
    return packed(peer_pb2.PushFrame(begin=begin))


def cached_file(path: Path, transfer: int, offer: ev.OfferFile) -> list[bytes | memoryview] | None:
    """All frames of a small file, if it is in the page cache. Raises Damaged, OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        sending = Sending(transfer, offer.entry, fd, begin_frame(transfer, offer, ask_offset=False))
        return sending.cached_part(offer.entry.size_bytes)
    finally:
        os.close(fd)


def send_part(sock: socket.socket, sending: Sending, size: int, buffer: memoryview) -> None:
    """Sends the next `size` bytes in one frame, by way of the buffer; in a thread. Raises Damaged, OSError."""
    head, end = sending.head(size), sending.offset + size
    while True:
        data = buffer[: end - sending.offset]
        if os.preadv(sending.fd, [data], sending.offset) != len(data):
            raise Damaged
        send_all(sock, head, sending.passed(data))
        if sending.offset == end:
            return
        head = b""
