"""The receiving end over sockets: a thread moves data files to the disk, the event loop stores small files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from benchmarks.transports.certificates import HOST
from benchmarks.transports.files import Target
from benchmarks.transports.sessions import LANES, WAYS, Session
from benchmarks.transports.socket_sender import CREDIT, PART, REPLY, SMALL, STORED
from rhino_core.errors import RhinoError
from worker_runtime.push.connection import Connection
from worker_runtime.push.sockets import tune
from worker_runtime.storage.incoming import Incoming

log = logging.getLogger(__name__)
Accept = Callable[[socket.socket, str, str], Session]  # makes the handshake, for a lane and a way


class SocketReceiver:
    """Serves one sender. `pairs`: each lane has one connection for each direction."""

    def __init__(self, target: Target, accept: Accept, piece_bytes: int, *, pairs: bool) -> None:
        self._target = target
        self._accept = accept
        self._piece_bytes = piece_bytes
        self._pairs = pairs
        self._listener = socket.create_server((HOST, 0))
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[tuple[str, str], Session] = {}
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept_all, name="accept", daemon=True).start()

    def _accept_all(self) -> None:
        for _ in range(len(LANES) * (len(WAYS) if self._pairs else 1)):
            sock, _ = self._listener.accept()
            tune(sock)
            lane, way = sock.recv(2, socket.MSG_WAITALL)
            session = self._accept(sock, LANES[lane], WAYS[way])
            self._sessions[LANES[lane], WAYS[way]] = session
            if not self._pairs:
                self._sessions[LANES[lane], WAYS[1 - way]] = session
        self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        bulk, commit = ([self._sessions[lane, way] for way in WAYS] for lane in LANES)
        bulk_replies = Connection(bulk[1].sock)

        def reply(kind: int, size: int) -> None:
            bulk_replies.post(*bulk[1].seal(REPLY.pack(kind, size)))

        def report(kind: int, size: int) -> None:
            self._loop.call_soon_threadsafe(reply, kind, size)

        threading.Thread(target=self._receive_files, args=(bulk[0], report), name="bulk", daemon=True).start()
        data = Connection(commit[0].sock)
        replies = data if commit[1] is commit[0] else Connection(commit[1].sock)
        _SmallFiles(self._target, commit[0], data, lambda: replies.post(*commit[1].seal(REPLY.pack(STORED, 0))))

    def _receive_files(self, session: Session, report: Callable[[int, int], None]) -> None:
        head, buffer = memoryview(bytearray(PART.size)), memoryview(bytearray(self._piece_bytes))
        incoming: Incoming | None = None
        try:
            while True:
                session.fill(head)
                size, crc, left = PART.unpack(head)
                incoming = incoming or self._target.begin(size)
                part = left
                while left:
                    piece = buffer[: min(left, len(buffer))]
                    session.fill(piece)
                    incoming.write((piece,))
                    left -= len(piece)
                report(CREDIT, part)
                if incoming.size_bytes == size:
                    self._target.finish(incoming, size, crc)
                    incoming = None
                    report(STORED, 0)
        except (EOFError, OSError):
            log.info("the sender has gone")
        finally:
            with contextlib.suppress(OSError):  # the sender has already ended the connection
                session.sock.shutdown(socket.SHUT_RDWR)


class _SmallFiles:
    """Stores small files on the event loop, as the commit lane does."""

    def __init__(self, target: Target, session: Session, connection: Connection, stored: Callable[[], None]) -> None:
        self._target = target
        self._session = session
        self._connection = connection
        self._stored = stored
        self._unread = b""
        connection.watch(self._readable)

    def _readable(self) -> None:
        try:
            self._unread += self._session.open(self._connection.read())
            while self._store():
                self._stored()
        except BlockingIOError:
            return
        except (RhinoError, EOFError, OSError) as error:
            self._connection.lose(error)

    def _store(self) -> bool:
        """One small file, if it is complete."""
        if len(self._unread) < SMALL.size:
            return False
        size, crc = SMALL.unpack_from(self._unread)
        end = SMALL.size + size
        if len(self._unread) < end:
            return False
        self._target.store(memoryview(self._unread)[SMALL.size : end], crc)
        self._unread = self._unread[end:]
        return True
