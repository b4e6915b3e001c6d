"""Frames and replies of a push stream, and what a core makes of them, for the tests of the cores."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c

from rhino_core.errors import UnavailableError
from rhino_core.ids import Epoch, FileEntry, StoreId
from rhino_core.rpc.convert import epoch_to_pb, file_to_pb
from rhino_pb import peer_pb2
from worker_runtime.push.core import incoming as events
from worker_runtime.push.core.framing import packed
from worker_runtime.push.core.receiver import PushReceiver

STORE = StoreId("job", 0, 3, "default")
EPOCH = Epoch(1, 1)
CREDIT = 1 << 30


class NoMemory:
    """For no large message at all."""

    def reserve(self, message_bytes: int) -> None:
        raise UnavailableError("no memory")

    def release(self, message_bytes: int) -> None:
        raise AssertionError("nothing was reserved")


class Counted(NoMemory):
    """Enough memory for everything; counts what is reserved."""

    reserved_bytes = 0

    def reserve(self, message_bytes: int) -> None:
        self.reserved_bytes += message_bytes

    def release(self, message_bytes: int) -> None:
        self.reserved_bytes -= message_bytes


def content(size: int, first: int = 0) -> bytes:
    return bytes((first + number) % 256 for number in range(size))


def entry(name: str, data: bytes, **more: Any) -> FileEntry:
    return FileEntry(STORE, name, len(data), crc32c(data), **more)


def sst(number: int, data: bytes) -> FileEntry:
    return entry(f"SSTs/{number:06d}-x.sst", data)


def begin(transfer: int, file: FileEntry, *, ask_offset: bool = False) -> bytes:
    message = peer_pb2.PushBegin(
        transfer=transfer, file=file_to_pb(file), epoch=epoch_to_pb(EPOCH), ask_offset=ask_offset
    )
    return packed(peer_pb2.PushFrame(begin=message))


def part(transfer: int, offset: int, data: bytes) -> bytes:
    message = peer_pb2.PushData(transfer=transfer, offset=offset)
    return packed(peer_pb2.PushFrame(data=message), len(data)) + data


def returned(credit_bytes: int) -> bytes:
    return packed(peer_pb2.PushFrame(returned=peer_pb2.PushReturn(bytes=credit_bytes)))


def reply(**alternative: Any) -> bytes:
    return packed(peer_pb2.PushReply(**alternative))


def opened(credit_bytes: int = CREDIT) -> PushReceiver:
    core = PushReceiver(NoMemory())
    core.grant(credit_bytes)
    return core


class Player:
    """Drives a receiver as the reading end does. `said` are its events as plain tuples."""

    def __init__(self, core: PushReceiver, *, unwanted: frozenset[int] = frozenset()) -> None:
        self.core = core
        self.said: list[tuple[Any, ...]] = []
        self._unwanted = unwanted

    def feed(self, data: bytes, *, direct: bool = False) -> None:
        """`direct`: bytes of files go to where the core wants them."""
        view = memoryview(data)
        while view:
            buffer = self.core.buffer() if direct else None
            count = len(view) if buffer is None else min(len(view), len(buffer))
            if direct and buffer is None:
                count = min(count, self.core.missing_bytes)
            if buffer is None:
                self.core.receive(bytes(view[:count]))
            else:
                buffer[:count] = view[:count]
                self.core.filled(count)
            view = view[count:]
            self._handle_all()

    def _handle_all(self) -> None:
        while (event := self.core.next_event()) is not None:
            self.said.append(self._handle(event))

    def _handle(self, event: events.Event) -> tuple[Any, ...]:
        match event:
            case events.FileReceived(file, data):
                return "whole", file.transfer, bytes(data)
            case events.FileBegun(file):
                return "begun", file.transfer
            case events.DecisionDue(file):
                if file.transfer in self._unwanted:
                    self.core.discard(file)
                else:
                    self.core.accept(file)
                return "decided", file.transfer
            case events.DataReceived(file, data, wanted):
                return "data", file.transfer, bytes(data), wanted
            case events.FileCompleted(file):
                return "complete", file.transfer
            case events.CreditReturned(credit_bytes):
                return "returned", credit_bytes
