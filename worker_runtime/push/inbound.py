"""The reading end of one inbound push stream: moves bytes from the socket through the core, and to disk.

A thread does this. It has one buffer, and nothing else grows: while it writes, the connection fills up and the sender
waits. Small files go to the event loop in one piece, within the stream's credit. While only small files arrive, the
event loop may read them itself. This saves a commit the switch between threads. Decisions and all accounting happen on
the event loop.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import time
from dataclasses import dataclass
from typing import NoReturn, Protocol

from rhino_core.errors import RemoteProtocolError, RhinoError
from worker_runtime.push.connection import Connection
from worker_runtime.push.core import incoming as core_events
from worker_runtime.push.core.incoming import IncomingFile
from worker_runtime.push.core.receiver import PushReceiver
from worker_runtime.push.sockets import limit_receive, wait_for
from worker_runtime.storage.arriving.received_files import IncomingFiles
from worker_runtime.storage.disk.incoming import Incoming
from worker_runtime.storage.index.stored_file import StoredFile

log = logging.getLogger(__name__)
MESSAGE_S = 10.0  # limit from the first byte of a message to its last
STALL_S = 10  # time without a byte after which resources reserved for a sender are given to others
# Bytes written before the loop is notified, unless the stream pauses or runs out of credit.
REPORT_BYTES = 4 * 1024 * 1024
_SMALL_BYTES = 4096  # bytes read at once for a message; data bytes among them have to be copied
_PAUSE_MS = 2  # longest gap between two frames of a sender that has more to send


# ---------------------------------------------------------------- what the event loop gets, beside events of the core


@dataclass(frozen=True, slots=True)
class Resumed:
    """`reply` goes to the sender. The first `data_bytes` of the file were here from an earlier attempt."""

    reply: bytes
    data_bytes: int


@dataclass(frozen=True, slots=True)
class BytesSettled:
    """Bytes are on disk, or were discarded."""

    data_bytes: int


@dataclass(frozen=True, slots=True)
class FileWritten:
    """All bytes of a file are on disk. `linked`: they were here under another name."""

    file: IncomingFile
    incoming: Incoming
    linked: bool


@dataclass(frozen=True, slots=True)
class WriteFailed:
    file: IncomingFile
    error: RhinoError


Report = core_events.FileReceived | core_events.CreditReturned | Resumed | BytesSettled | FileWritten | WriteFailed


class EventLoop(Protocol):
    """The side of the stream on the event loop. A thread may call both methods."""

    def report(self, report: Report) -> None:
        """Handles the report soon, and all reports in order."""
        ...

    def decide(self, file: IncomingFile) -> list[StoredFile] | None:
        """Waits for the machine's decision. Returns stored files with the same bytes, or None: the file is not wanted.

        Raises EOFError if the stream has ended meanwhile.
        """
        ...


def too_slow() -> RemoteProtocolError:
    return RemoteProtocolError(f"a message that was not complete within {MESSAGE_S} s")


class Inbound:
    """Use `run`, or `read_large` whenever the event loop cannot handle an event; then `close`."""

    def __init__(self, connection: Connection, core: PushReceiver, files: IncomingFiles, loop: EventLoop) -> None:
        # Without a timeout, a thread in the middle of a file could not detect that nothing arrives.
        limit_receive(connection.sock, STALL_S)
        self._sock, self._opener = connection.sock, connection.opener
        self._core = core
        self._files = files
        self._loop = loop
        self._incoming: dict[IncomingFile, Incoming] = {}  # files with bytes on disk
        self._unreported_bytes = 0
        self._message = -1  # number of the message under way, and when a thread read its first byte
        self._message_since = 0.0

    def run(self) -> None:
        """Reads everything, in a thread. Raises EOFError when the stream ends, OSError, RemoteProtocolError.

        TamperedError, a RemoteProtocolError, means: bytes on the wire differ from those sent.
        """
        while True:
            self._handle(self._next_event())

    def read_large(self, event: core_events.Event) -> None:
        """In a thread: handle the event, then read until no bytes of files are due. Raises like `run`."""
        self._handle(event)
        while self._core.busy:
            self._handle(self._next_event())
        self._report_settled()

    def close(self) -> None:
        """Keeps large unfinished files for the next attempt, and discards the others. Blocks."""
        self._core.close()
        for file, incoming in self._incoming.items():
            with contextlib.suppress(RhinoError):  # the disk has recorded the error; nothing depends on the file
                self._files.suspend(file.entry, incoming)

    # ------------------------------------------------------------ events of the core

    def _next_event(self) -> core_events.Event:
        while (event := self._core.next_event()) is None:
            buffer = self._core.buffer()
            if buffer is None:
                self._core.receive(self._recv_message())
                self._require_progress()
            else:
                self._core.filled(self._recv_data(buffer))
        return event

    def _handle(self, event: core_events.Event) -> None:
        match event:
            case core_events.DataReceived(file, data, wanted):
                if wanted:
                    self._write(file, data)
                self._unreported_bytes += len(data)
                if self._unreported_bytes >= min(REPORT_BYTES, self._core.credit_bytes):
                    self._report_settled()
            case core_events.FileCompleted(file):
                self._report_settled()
                self._loop.report(FileWritten(file, self._incoming.pop(file), linked=False))
            case core_events.FileReceived():
                self._loop.report(event)
            case core_events.FileBegun(file):
                self._begin(file)
            case core_events.DecisionDue(file):
                self._decide(file)
            case core_events.CreditReturned():
                self._report_settled()  # the bytes that the sender sent before
                self._loop.report(event)

    def _begin(self, file: IncomingFile) -> None:
        if not file.ask_offset and not self._files.has_partial(file.entry):
            return
        twins = self._loop.decide(file)
        if twins is None:
            self._core.discard(file)
        elif (incoming := self._files.link(file.entry, twins)) is not None:
            # The sender learns that the file is stored, and sends no bytes.
            self._core.complete(file)
            self._loop.report(FileWritten(file, incoming, linked=True))
        else:
            self._resume(file)

    def _resume(self, file: IncomingFile) -> None:
        """Continues with the bytes of a broken attempt, and reports the offset to the sender."""
        offset = 0
        try:
            incoming = self._files.resume(file.entry)
        except RhinoError as error:  # start the file again; it may be refused then
            log.warning("cannot go on with a file", extra={"file": file.entry.name, "error": str(error)})
        else:
            if incoming is not None:
                self._incoming[file] = incoming
                offset = incoming.size_bytes
        if reply := self._core.accept(file, offset):
            self._loop.report(Resumed(reply, offset))

    def _decide(self, file: IncomingFile) -> None:
        if self._loop.decide(file) is None:
            self._core.discard(file)
        else:
            self._core.accept(file)

    def _write(self, file: IncomingFile, data: memoryview) -> None:
        incoming = self._incoming.get(file)
        try:
            if incoming is None:
                self._incoming[file] = self._files.begin(file.entry, (data,))
            else:
                self._files.append(file.entry, incoming, (data,))
        except RhinoError as error:
            self._drop(file)
            self._loop.report(WriteFailed(file, error))

    def _drop(self, file: IncomingFile) -> None:
        self._core.discard(file)
        if (incoming := self._incoming.pop(file, None)) is not None:
            with contextlib.suppress(RhinoError):  # the next start deletes leftovers
                self._files.abort(file.entry, incoming)

    def _report_settled(self) -> None:
        if self._unreported_bytes:
            self._loop.report(BytesSettled(self._unreported_bytes))
            self._unreported_bytes = 0

    # ------------------------------------------------------------ the socket

    def _recv_message(self) -> bytes:
        """At least one byte of a message, and perhaps bytes after it."""
        data = self._opener.feed(b"")  # what was read together with the bytes of a file
        while not data:
            wanted = max(self._core.missing_bytes, self._opener.missing_bytes, _SMALL_BYTES)
            try:
                received = self._sock.recv(wanted, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if not wait_for(self._sock, select.POLLIN, _PAUSE_MS):
                    self._report_settled()
                    self._wait()
                continue
            if not received:
                self._ended()
            data = self._opener.feed(received)
            if not data:
                self._require_progress()
        return data

    def _recv_data(self, into: memoryview) -> int:
        while not (count := self._opener.take(into)):
            try:
                arrived = self._sock.recv_into(self._opener.target(into), 0, socket.MSG_WAITALL)
            except BlockingIOError:
                self._wait()
                continue
            if arrived == 0:
                self._ended()
            self._opener.arrived(arrived)
        return count

    def _ended(self) -> NoReturn:
        self._opener.end()
        raise EOFError

    def _wait(self) -> None:
        """Waits until something arrives or STALL_S have passed."""
        if not wait_for(self._sock, select.POLLIN, STALL_S * 1000):
            self._release_space()
            self._require_progress()

    def _require_progress(self) -> None:
        """Raises RemoteProtocolError for a message that takes too long."""
        if not self._core.in_message and not (self._core.buffer() is None and self._opener.missing_bytes):
            return
        now = time.monotonic()
        if self._core.messages != self._message:
            self._message, self._message_since = self._core.messages, now
        elif now - self._message_since >= MESSAGE_S:
            raise too_slow()

    def _release_space(self) -> None:
        """Nothing arrives: releases the space reserved for files under way. Others can use it."""
        for file, incoming in self._incoming.items():
            try:
                self._files.release_space(file.entry, incoming)
            except RhinoError as error:
                log.warning("reserved space is not free", extra={"file": file.entry.name, "error": str(error)})
