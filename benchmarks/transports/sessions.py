"""What the socket transports do to bytes: nothing, TLS (tls.py), or records (records.py)."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

from worker_runtime.push.core.session import Piece
from worker_runtime.push.sockets import send_all

LANES = ("bulk", "commit")
WAYS = ("data", "replies")


class Session(Protocol):
    """One connection after its handshake.

    In a direction either a thread uses it (`send`, `fill`) or an event loop (`seal`, `open`), never both.
    """

    @property
    def sock(self) -> socket.socket:
        """For the event loop, and to close."""
        ...

    def send(self, head: bytes, data: memoryview) -> None:
        """Sends both; blocks. Raises OSError."""
        ...

    def fill(self, view: memoryview) -> None:
        """Receives as many bytes as the view has; blocks. Raises EOFError at the end of the stream, and OSError."""
        ...

    def seal(self, data: bytes) -> Sequence[Piece]:
        """The bytes for the wire."""
        ...

    def open(self, data: bytes) -> bytes:
        """Returns the plain bytes of the records that are complete. The rest waits for the next call."""
        ...


def receive(sock: socket.socket, view: memoryview) -> None:
    """Fill the view from a blocking socket. Raises EOFError, OSError."""
    while view:
        count = sock.recv_into(view, 0, socket.MSG_WAITALL)
        if count == 0:
            raise EOFError
        view = view[count:]


class PlainSession:
    """Bytes as they are."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, head: bytes, data: memoryview) -> None:
        send_all(self.sock, head, data)

    def fill(self, view: memoryview) -> None:
        receive(self.sock, view)

    def seal(self, data: bytes) -> Sequence[bytes]:
        return (data,)

    def open(self, data: bytes) -> bytes:
        return data
