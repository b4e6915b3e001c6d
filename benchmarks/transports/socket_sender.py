"""The sending end over sockets, shaped as a link of a sidecar: a thread sends data files, the event loop the rest."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from crc32c import crc32c

from benchmarks.transports.files import SourceFile
from benchmarks.transports.sessions import Session
from worker_runtime.precedence import Precedence
from worker_runtime.push.connection import Connection
from worker_runtime.push.outbound import CheckedFile
from worker_runtime.storage.threads import open_stored, run_in

PART = struct.Struct("<QII")  # before each part of a data file: the file's size and crc32c, bytes of the part
SMALL = struct.Struct("<II")  # before a small file: its size and crc32c
REPLY = struct.Struct("<II")  # kind, bytes of credit
CREDIT, STORED = 1, 2
PART_BYTES = 4 * 1024 * 1024  # as links send them
WINDOW_BYTES = 64 * 1024 * 1024


class Replies:
    """Reads the replies of one lane on the event loop. A broken connection fails whoever waits."""

    def __init__(self, session: Session, connection: Connection) -> None:
        self._session = session
        self._connection = connection
        self._unread = b""
        self.credit_bytes = WINDOW_BYTES
        self._more = asyncio.Event()
        self._stored: deque[asyncio.Future[None]] = deque()
        connection.lost.add_done_callback(self._lost)
        connection.watch(self._readable)

    def stored(self) -> asyncio.Future[None]:
        """Of the next file that is sent."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stored.append(waiting)
        return waiting

    async def spend(self, size: int) -> None:
        while self.credit_bytes < size:
            self._more.clear()
            await self._more.wait()
        self.credit_bytes -= size

    def _readable(self) -> None:
        try:
            self._unread += self._session.open(self._connection.read())
        except BlockingIOError:
            return
        except Exception as error:
            self._connection.lose(error)
            return
        while len(self._unread) >= REPLY.size:
            kind, size = REPLY.unpack_from(self._unread)
            self._unread = self._unread[REPLY.size :]
            if kind == CREDIT:
                self.credit_bytes += size
                self._more.set()
            else:
                self._stored.popleft().set_result(None)

    def _lost(self, lost: asyncio.Future[None]) -> None:
        if lost.cancelled() or (error := lost.exception()) is None:
            return
        for waiting in self._stored:
            if not waiting.done():
                waiting.set_exception(error)


class SocketSender:
    """`Sending` over two lanes. `data` and `replies` of a lane are one session, or one for each direction."""

    def __init__(self, bulk: tuple[Session, Session], commit: tuple[Session, Session], piece_bytes: int) -> None:
        self._bulk, self._commit = bulk[0], commit[0]
        self._connections: dict[socket.socket, Connection] = {}
        self._bulk_replies = Replies(bulk[1], self._connection(bulk[1]))
        self._commit_replies = Replies(commit[1], self._connection(commit[1]))
        self._commit_connection = self._connection(commit[0])
        self._others = [] if bulk[0].sock is bulk[1].sock else [bulk[0].sock]
        self._precedence = Precedence(lambda: False)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="to-receiver")
        self._piece_bytes = piece_bytes
        self._buffer = memoryview(bytearray(piece_bytes))

    def _connection(self, session: Session) -> Connection:
        if session.sock not in self._connections:
            self._connections[session.sock] = Connection(session.sock)
        return self._connections[session.sock]

    async def send(self, file: SourceFile) -> None:
        stored, entry, sent_at = self._bulk_replies.stored(), file.entry, 0.0
        checked = CheckedFile(entry, open_stored(file.path))
        sending = asyncio.ensure_future(self._send_parts(checked, entry.size_bytes, entry.crc32c, sent_at))
        try:
            await asyncio.wait({stored, sending}, return_when=asyncio.FIRST_EXCEPTION)
            if not sending.done():  # the connection is lost, and no credit will come
                sending.cancel()
            await asyncio.gather(stored, sending)
        finally:
            checked.close()

    async def _send_parts(self, checked: CheckedFile, size: int, crc: int, sent_at: float) -> None:
        while checked.checked_bytes < size:
            sent_at = await self._precedence.yield_to_commits(sent_at)
            part = self._piece_bytes if self._precedence.under_way else PART_BYTES
            part = min(part, size - checked.checked_bytes)
            await self._bulk_replies.spend(part)
            await run_in(self._pool, partial(self._send_part, checked, PART.pack(size, crc, part), part))

    def _send_part(self, checked: CheckedFile, head: bytes, size: int) -> None:
        for data in checked.pieces(size, self._buffer):
            self._bulk.send(head, data)
            head = b""

    async def commit(self, content: bytes) -> None:
        stored = self._commit_replies.stored()
        self._precedence.commit()
        head = SMALL.pack(len(content), crc32c(content))
        self._commit_connection.post(*self._commit.seal(head + content), at_once=True)
        await stored
        self._precedence.commit()

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        for sock in self._others:
            sock.close()
        self._pool.shutdown()
