"""The event loop's end of a push connection."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable

from rhino_core.errors import LocalProtocolError, UnavailableError
from worker_runtime.push.core.records import Piece, Sealer, Session, plain_session
from worker_runtime.push.sockets import send_all, taken_bytes

READ_BYTES = 256 * 1024  # bytes that the event loop reads at once


class ThreadSender:
    """The sending side of a connection, for one thread."""

    def __init__(self, sock: socket.socket, sealer: Sealer) -> None:
        self._sock = sock
        self._sealer = sealer

    def send(self, head: bytes, data: memoryview) -> None:
        """Sends the head, then the data. Blocks. Raises OSError."""
        for first, second in self._sealer.sealed(head, data):
            send_all(self._sock, first, second)


class Connection:
    """Sends without waiting, and watches for arriving bytes. Threads may use `sock` for the rest.

    `lost` receives the reason as its exception once the connection cannot be used any more. `opener` has the bytes not
    read to the end: a reading thread continues with it.
    """

    def __init__(
        self, sock: socket.socket, session: Session | None = None, check: Callable[[], None] | None = None
    ) -> None:
        """`session`: the encryption of the bytes; None: they are plain.

        `check` raises AccessDeniedError once the certificate of the other end counts no more. None: there is none.
        """
        self.check = check
        sock.setblocking(True)
        self.sock = sock
        sealer, self.opener = session or plain_session()
        self._sealer: Sealer | None = sealer  # None: a thread has it
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[Piece] = deque()
        self._flush_due = False
        self._writing = False
        self._open = True

    def thread_sender(self) -> ThreadSender:
        """Hands the sending side over to a thread for good. The event loop cannot `post` any more."""
        if self._sealer is None:
            raise LocalProtocolError("a thread has the sending side of this connection already")
        sealer, self._sealer = self._sealer, None
        return ThreadSender(self.sock, sealer)

    def post(self, *pieces: Piece, at_once: bool = False) -> None:
        """Sends the pieces in this order, together with everything else posted in the same turn of the loop.

        `at_once`: send now, so the other side can work on the pieces meanwhile.
        """
        if self._sealer is None:
            raise LocalProtocolError("a thread has the sending side of this connection")
        self._unsent.extend(self._sealer.seal(*pieces))
        if self._writing:
            return
        if at_once:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if not self._open:
            return
        try:
            while self._unsent:
                pieces = [self._unsent[number] for number in range(min(len(self._unsent), 64))]
                sent = self.sock.sendmsg(pieces, (), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                while self._unsent and sent >= len(self._unsent[0]):
                    sent -= len(self._unsent.popleft())
                if sent:
                    self._unsent[0] = memoryview(self._unsent[0])[sent:]
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self.sock.fileno(), self._flush)
            return
        except OSError as error:
            self.lose(error)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self.sock.fileno())

    def read(self) -> bytes:
        """Returns the arrived bytes, as far as they are complete.

        Raises BlockingIOError if none have arrived, EOFError at the end of the stream, OSError, and TamperedError.
        """
        data = self.sock.recv(READ_BYTES, socket.MSG_DONTWAIT)
        if not data:
            self.opener.end()
            raise EOFError
        return self.opener.feed(data)

    def watch(self, readable: Callable[[], None] | None) -> None:
        """Call `readable` whenever there is something to read. None ends this."""
        if readable is None or not self._open:
            self._loop.remove_reader(self.sock.fileno())
            return
        self._loop.add_reader(self.sock.fileno(), readable)
        self.sock.setblocking(True)  # uvloop has made it non-blocking: threads would poll between small pieces

    def lose(self, error: Exception) -> None:
        """Reads no more. The error is the reason of `lost`, or UnavailableError if the connection itself has failed."""
        self._loop.remove_reader(self.sock.fileno())
        if isinstance(error, EOFError):
            error = UnavailableError("the receiver has closed the stream")
        elif isinstance(error, OSError):
            error = UnavailableError(f"connection lost: {error}")
        if not self.lost.done():
            self.lost.set_exception(error)

    def taken_bytes(self) -> int:
        """How many bytes the machine at the other end has taken. 0 after the end."""
        return taken_bytes(self.sock) if self._open else 0

    def discard_unsent(self) -> None:
        """The kernel drops unsent bytes when the connection is closed."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def shut(self) -> None:
        """Ends the connection: waiting threads get an error or end of stream. The socket is not closed yet."""
        if not self._open:
            return
        self._flush()  # try to send what is still queued
        self._open = False
        self._loop.remove_reader(self.sock.fileno())
        self._loop.remove_writer(self.sock.fileno())
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other side has already ended it

    def close(self) -> None:
        """Closes the socket. Call it once no thread uses the connection any more."""
        self.shut()
        self.sock.close()
        if not self.lost.cancel() and not self.lost.cancelled():
            self.lost.exception()  # mark the exception as retrieved
