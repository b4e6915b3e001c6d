"""Push streams on the wire: length-prefixed messages on a TCP connection, with file bytes behind them as they are.

State bytes are most of what a sidecar handles. Through gRPC each chunk took several wake-ups and copies; here a thread
moves it between a file and a socket through one small buffer that stays in the processor's cache.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections import deque
from collections.abc import Callable

from google.protobuf.message import DecodeError, Message

from rhino.errors import RemoteProtocolError, UnavailableError
from rhino_pb import peer_pb2

_HEAD = struct.Struct("<II")  # bytes of the message, bytes of the data behind it
MESSAGE_BYTES_MAX = 64 * 1024 * 1024  # a zip names thousands of files
_SMALL_BYTES = 4096  # read at once for a message; what is already data is copied
_TAKE_BYTES = 256 * 1024  # read at once by the event loop
_PAUSE_MS = 2  # between two frames of a sender that has more
_SILENT_MS = 15_000  # after which a peer that does not even acknowledge is taken for dead


def packed(message: Message, data_bytes: int = 0) -> bytes:
    """The message as it goes over the wire; `data_bytes` of data are to follow."""
    body = message.SerializeToString()
    return _HEAD.pack(len(body), data_bytes) + body


def tune(sock: socket.socket) -> None:
    """Small messages at once; a silently dead peer is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("KEEPIDLE", 10), ("KEEPINTVL", 2), ("KEEPCNT", 3), ("USER_TIMEOUT", _SILENT_MS)):
        option = getattr(socket, f"TCP_{name}", None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def send_all(sock: socket.socket, head: bytes, data: memoryview) -> None:
    """Both, one behind the other; for a thread. Raises OSError."""
    pieces = [memoryview(head), data]
    while pieces:
        try:
            sent = sock.sendmsg(pieces)
        except BlockingIOError:
            _wait(sock, select.POLLOUT)
            continue
        while pieces and sent >= len(pieces[0]):
            sent -= len(pieces.pop(0))
        if sent:
            pieces[0] = pieces[0][sent:]


def _wait(sock: socket.socket, event: int, timeout_ms: int | None = None) -> bool:
    """Whether it came; uvloop makes a socket that it watches non-blocking."""
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(timeout_ms))


def _lengths(head: bytes | bytearray | memoryview) -> tuple[int, int]:
    message_bytes, data_bytes = _HEAD.unpack_from(head)
    if message_bytes > MESSAGE_BYTES_MAX:
        raise RemoteProtocolError(f"a message of {message_bytes} bytes, at most {MESSAGE_BYTES_MAX} are allowed")
    return message_bytes, data_bytes


def _frame(message: bytes) -> peer_pb2.PushFrame:
    try:
        return peer_pb2.PushFrame.FromString(message)
    except DecodeError as error:
        raise RemoteProtocolError(f"not a frame of a push stream: {error}") from error


class FrameReader:
    """Reads PushFrames from a socket, in a thread. `before_waiting` is called when nothing has come for a while.

    `take_in` and `ahead` never wait: they are for the event loop, while no thread reads.
    """

    def __init__(self, sock: socket.socket, before_waiting: Callable[[], None]) -> None:
        self._sock = sock
        self._before_waiting = before_waiting
        self._ahead = bytearray()  # read, and not yet used
        self._next: tuple[peer_pb2.PushFrame, int] | None = None  # came before these bytes

    def frame(self) -> tuple[peer_pb2.PushFrame, int]:
        """The next frame and the number of data bytes behind it, which have to be read next.

        Raises EOFError at the end of the stream, RemoteProtocolError, OSError.
        """
        while (found := self.ahead()) is None:
            self._read_ahead(_HEAD.size)
            self._read_ahead(_HEAD.size + _lengths(self._ahead)[0])
        self._next = None
        return found

    def take_in(self) -> None:
        """What has come. Raises BlockingIOError when that is nothing, EOFError at the end of the stream, OSError."""
        piece = self._sock.recv(_TAKE_BYTES, socket.MSG_DONTWAIT)
        if not piece:
            raise EOFError
        self._ahead += piece

    def ahead(self) -> tuple[peer_pb2.PushFrame, int] | None:
        """The next frame, which is not taken by that, if all of its message is here. Raises RemoteProtocolError."""
        if self._next is None and len(self._ahead) >= _HEAD.size:
            message_bytes, data_bytes = _lengths(self._ahead)
            end = _HEAD.size + message_bytes
            if len(self._ahead) >= end:
                self._next = _frame(bytes(memoryview(self._ahead)[_HEAD.size : end])), data_bytes
                del self._ahead[:end]
        return self._next

    @property
    def data_bytes(self) -> int:
        """How many bytes behind that frame are here."""
        return len(self._ahead)

    def data(self, into: memoryview) -> None:
        """Fills all of it."""
        ahead = min(len(self._ahead), len(into))
        if ahead:
            into[:ahead] = self._ahead[:ahead]
            del self._ahead[:ahead]
        while ahead < len(into):
            try:
                count = self._sock.recv_into(into[ahead:], 0, socket.MSG_WAITALL)
            except BlockingIOError:
                _wait(self._sock, select.POLLIN)
                continue
            if count == 0:
                raise EOFError
            ahead += count

    def _read_ahead(self, size: int) -> None:
        while len(self._ahead) < size:
            wanted = max(size - len(self._ahead), _SMALL_BYTES)
            try:
                piece = self._sock.recv(wanted, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if not _wait(self._sock, select.POLLIN, _PAUSE_MS):
                    self._before_waiting()
                    _wait(self._sock, select.POLLIN)
                continue
            if not piece:
                raise EOFError
            self._ahead += piece


class Wire:
    """The loop's side of a connection: sends without waiting, receives replies. Threads may use `sock` for the rest.

    `lost` is set to the reason once it cannot be used any more.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self.sock = sock
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[bytes | memoryview] = deque()
        self._flush_due = False
        self._writing = False
        self._received = bytearray()
        self._open = True

    def post(self, *pieces: bytes | memoryview) -> None:
        """Sends them in this order, all that is posted in one turn of the loop together."""
        self._unsent.extend(pieces)
        if not self._flush_due and not self._writing:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def send(self, *pieces: bytes | memoryview) -> None:
        """As `post`, and now: the other side is to work on it while this one goes on."""
        self.post(*pieces)
        if not self._writing:
            self._flush()

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
            self._lose(UnavailableError(f"connection lost: {error}"))
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self.sock.fileno())

    def receive(self, take: Callable[[peer_pb2.PushReply], None]) -> None:
        """From now on calls `take` for each reply; what it raises is the reason of `lost`."""

        def readable() -> None:
            try:
                piece = self.sock.recv(256 * 1024, socket.MSG_DONTWAIT)
                if not piece:
                    raise UnavailableError("the receiver has closed the stream")
                self._received += piece
                for reply in self._replies():
                    take(reply)
            except BlockingIOError:
                return
            except Exception as error:
                self._lose(UnavailableError(f"connection lost: {error}") if isinstance(error, OSError) else error)

        self.watch(readable)

    def watch(self, readable: Callable[[], None] | None) -> None:
        """Calls it whenever there is something to read, until told otherwise."""
        if readable is None or not self._open:
            self._loop.remove_reader(self.sock.fileno())
            return
        self._loop.add_reader(self.sock.fileno(), readable)
        self.sock.setblocking(True)  # uvloop has made it non-blocking: threads would poll between small pieces

    def _replies(self) -> list[peer_pb2.PushReply]:
        replies = []
        while len(self._received) >= _HEAD.size:
            message_bytes, data_bytes = _lengths(self._received)
            if data_bytes:
                raise RemoteProtocolError(f"{data_bytes} bytes of data behind a reply")
            end = _HEAD.size + message_bytes
            if len(self._received) < end:
                break
            try:
                replies.append(peer_pb2.PushReply.FromString(bytes(memoryview(self._received)[_HEAD.size : end])))
            except DecodeError as error:
                raise RemoteProtocolError(f"not a reply of a push stream: {error}") from error
            del self._received[:end]
        return replies

    def _lose(self, error: Exception) -> None:
        self._loop.remove_reader(self.sock.fileno())
        if not self.lost.done():
            self.lost.set_exception(error)

    def shut(self) -> None:
        """Ends the connection: threads that wait for it get an error or its end. Not yet `close`d."""
        if not self._open:
            return
        self._flush()  # a last word, if it gets through
        self._open = False
        self._loop.remove_reader(self.sock.fileno())
        self._loop.remove_writer(self.sock.fileno())
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other side was first

    def close(self) -> None:
        """Once no thread uses it any more."""
        self.shut()
        self.sock.close()
        if not self.lost.cancel() and not self.lost.cancelled():
            self.lost.exception()  # whoever wanted to know has asked
