"""Sessions of the records that sidecars use (docs/design/push-encryption.md), with blocking sockets."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence

from benchmarks.transports.sessions import receive
from rhino_core.errors import RemoteProtocolError
from worker_runtime.push.connection import ThreadSender
from worker_runtime.push.core.keys import RANDOM_BYTES, SECRET_BYTES, STREAM_ID_BYTES, SUITE, Handshake
from worker_runtime.push.core.records import FINISHED_BYTES, RecordOpener, RecordSealer, receiver_ends, sender_ends
from worker_runtime.push.core.session import Piece


class Tickets:
    """The receiver's side: secrets that were handed out over gRPC, each for one connection."""

    def __init__(self) -> None:
        self._secrets: dict[bytes, bytes] = {}

    def issue(self) -> bytes:
        stream, secret = secrets.token_bytes(STREAM_ID_BYTES), secrets.token_bytes(SECRET_BYTES)
        self._secrets[stream] = secret
        return stream + secret

    def redeem(self, stream: bytes) -> bytes:
        """Raises RemoteProtocolError for a stream that has no ticket."""
        if (secret := self._secrets.pop(stream, None)) is None:
            raise RemoteProtocolError(f"stream {stream.hex()} has no ticket")
        return secret


class RecordSession:
    """`open` and `fill` raise TamperedError for a record that somebody has changed."""

    def __init__(self, sock: socket.socket, sealer: RecordSealer, opener: RecordOpener) -> None:
        self.sock = sock
        self._sealer = sealer
        self._opener = opener
        self._thread = ThreadSender(sock, sealer)

    @classmethod
    def connect(cls, sock: socket.socket, ticket: bytes) -> RecordSession:
        """Raises TamperedError, EOFError, OSError."""
        stream, secret = ticket[:STREAM_ID_BYTES], ticket[STREAM_ID_BYTES:]
        mine = secrets.token_bytes(RANDOM_BYTES)
        sock.sendall(stream + mine)
        about = _handshake(stream, mine, _exactly(sock, RANDOM_BYTES))
        sealer, opener = sender_ends(secret, about)
        opener.check_finished(_exactly(sock, FINISHED_BYTES), about.transcript())
        sock.sendall(sealer.finished(about.transcript()))
        return cls(sock, sealer, opener)

    @classmethod
    def accept(cls, sock: socket.socket, tickets: Tickets) -> RecordSession:
        """Raises TamperedError, RemoteProtocolError, EOFError, OSError."""
        stream, theirs = _exactly(sock, STREAM_ID_BYTES), _exactly(sock, RANDOM_BYTES)
        mine = secrets.token_bytes(RANDOM_BYTES)
        about = _handshake(stream, theirs, mine)
        sealer, opener = receiver_ends(tickets.redeem(stream), about)
        sock.sendall(mine + sealer.finished(about.transcript()))
        opener.check_finished(_exactly(sock, FINISHED_BYTES), about.transcript())
        return cls(sock, sealer, opener)

    def send(self, head: bytes, data: memoryview) -> None:
        self._thread.send(head, data)

    def fill(self, view: memoryview) -> None:
        while view:
            if not (count := self._opener.take(view)):
                arrived = self.sock.recv_into(self._opener.target(view), 0, socket.MSG_WAITALL)
                if arrived == 0:
                    raise EOFError
                self._opener.arrived(arrived)
            view = view[count:]

    def seal(self, data: bytes) -> Sequence[Piece]:
        return self._sealer.seal(data)

    def open(self, data: bytes) -> bytes:
        return self._opener.feed(data)


def _handshake(stream: bytes, sender_random: bytes, receiver_random: bytes) -> Handshake:
    return Handshake(SUITE, stream, "benchmark", "sender", "receiver", sender_random, receiver_random)


def _exactly(sock: socket.socket, size: int) -> bytes:
    found = bytearray(size)
    receive(sock, memoryview(found))
    return bytes(found)
