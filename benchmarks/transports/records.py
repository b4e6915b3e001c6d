"""Sessions of AES-GCM records under keys from a ticket, as section 7.3 of the security design proposes them.

A record is its length and number in clear, which are authenticated, then the ciphertext and its tag. Each direction has
a key and a counter of its own, so a thread and an event loop never share one.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
from collections.abc import Sequence

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from benchmarks.transports.sessions import receive
from rhino_core.errors import RemoteProtocolError
from worker_runtime.push.sockets import send_all

ID_BYTES, SECRET_BYTES, RANDOM_BYTES = 16, 32, 32
_KEY_BYTES, _SALT_BYTES, _TAG_BYTES = 16, 12, 16
_HEAD = struct.Struct("<QQ")  # bytes of the ciphertext without its tag, number; the ciphertext behind it stays aligned


class Tickets:
    """The receiver's side: secrets that were handed out over gRPC, each for one connection."""

    def __init__(self) -> None:
        self._secrets: dict[bytes, bytes] = {}

    def issue(self) -> bytes:
        stream, secret = secrets.token_bytes(ID_BYTES), secrets.token_bytes(SECRET_BYTES)
        self._secrets[stream] = secret
        return stream + secret

    def redeem(self, stream: bytes) -> bytes:
        """Raises RemoteProtocolError for a stream that has no ticket."""
        if (secret := self._secrets.pop(stream, None)) is None:
            raise RemoteProtocolError(f"stream {stream.hex()} has no ticket")
        return secret


class _Direction:
    """Key, salt and counter."""

    def __init__(self, key: bytes, salt: bytes) -> None:
        self.cipher = AESGCM(key)
        self._salt = int.from_bytes(salt, "big")
        self._counter = 0

    def next(self, size: int) -> tuple[bytes, bytes]:
        """Nonce and head of the next record."""
        number = self._counter
        self._counter += 1
        return (self._salt ^ number).to_bytes(_SALT_BYTES, "big"), _HEAD.pack(size, number)


class RecordSession:
    """`open` and `fill` raise cryptography's InvalidTag for a record that somebody has changed."""

    def __init__(self, sock: socket.socket, secret: bytes, randoms: bytes, *, server: bool, piece_bytes: int) -> None:
        """Both sides prove that they have the key. Raises InvalidTag, EOFError, OSError."""
        self.sock = sock
        size = 2 * (_KEY_BYTES + _SALT_BYTES)
        made = HKDF(hashes.SHA256(), size, salt=randoms, info=b"rhino push benchmark v1").derive(secret)
        halves = made[: size // 2], made[size // 2 :]
        self._out, self._in = (
            _Direction(half[:_KEY_BYTES], half[_KEY_BYTES:]) for half in (halves[::-1] if server else halves)
        )
        self._sealed = memoryview(bytearray(piece_bytes + _TAG_BYTES))
        self._wire = memoryview(bytearray(_HEAD.size + piece_bytes + _TAG_BYTES))
        self._bytes_max = piece_bytes
        self._unread = b""
        proof = hashes.Hash(hashes.SHA256())
        proof.update(randoms)
        transcript = proof.finalize()
        self.send(transcript, memoryview(b""))
        theirs = bytearray(len(transcript))
        self.fill(memoryview(theirs))
        if theirs != transcript:
            raise RemoteProtocolError("the other side has seen another handshake")

    @classmethod
    def connect(cls, sock: socket.socket, ticket: bytes, piece_bytes: int) -> RecordSession:
        stream, secret = ticket[:ID_BYTES], ticket[ID_BYTES:]
        mine = os.urandom(RANDOM_BYTES)
        sock.sendall(stream + mine)
        theirs = bytearray(RANDOM_BYTES)
        receive(sock, memoryview(theirs))
        return cls(sock, secret, stream + mine + theirs, server=False, piece_bytes=piece_bytes)

    @classmethod
    def accept(cls, sock: socket.socket, tickets: Tickets, piece_bytes: int) -> RecordSession:
        hello = bytearray(ID_BYTES + RANDOM_BYTES)
        receive(sock, memoryview(hello))
        mine = os.urandom(RANDOM_BYTES)
        sock.sendall(mine)
        secret = tickets.redeem(bytes(hello[:ID_BYTES]))
        return cls(sock, secret, bytes(hello) + mine, server=True, piece_bytes=piece_bytes)

    def send(self, head: bytes, data: memoryview) -> None:
        """The head is a record of its own."""
        first = self._record(head) if head else b""
        if not data:
            return send_all(self.sock, first, data)
        sealed = self._sealed[: len(data) + _TAG_BYTES]
        nonce, second = self._out.next(len(data))
        self._out.cipher.encrypt_into(nonce, data, second, sealed)
        return send_all(self.sock, first + second, sealed)

    def fill(self, view: memoryview) -> None:
        """The view is as long as the record: its head and its bytes come with one call, and wake the thread once."""
        wire = self._wire[: _HEAD.size + len(view) + _TAG_BYTES]
        receive(self.sock, wire)
        nonce, head = self._in.next(len(view))
        if wire[: _HEAD.size] != head:
            size, number = _HEAD.unpack_from(wire)
            raise RemoteProtocolError(f"record {number} of {size} bytes, expected one of {len(view)}")
        self._in.cipher.decrypt_into(nonce, wire[_HEAD.size :], head, view)

    def seal(self, data: bytes) -> Sequence[bytes]:
        return (self._record(data),)

    def open(self, data: bytes) -> bytes:
        unread, found, start = self._unread + data, [], 0
        while len(unread) - start >= _HEAD.size:
            size = self._allowed(_HEAD.unpack_from(unread, start)[0])
            end = start + _HEAD.size + size + _TAG_BYTES
            if end > len(unread):
                break
            nonce, head = self._in.next(size)
            found.append(self._in.cipher.decrypt(nonce, unread[start + _HEAD.size : end], head))
            start = end
        self._unread = unread[start:]
        return b"".join(found)

    def _allowed(self, size: int) -> int:
        """The length is in clear: nobody may make this side wait for 4 GiB."""
        if size > self._bytes_max:
            raise RemoteProtocolError(f"a record of {size} bytes, at most {self._bytes_max} are allowed")
        return size

    def _record(self, data: bytes) -> bytes:
        nonce, head = self._out.next(len(data))
        sealed: bytes = self._out.cipher.encrypt(nonce, data, head)
        return head + sealed
