"""Encrypted and authenticated records of push streams, without I/O. docs/design/push-encryption.md specifies them.

A record is its length, its kind and its number in clear, then the ciphertext, then the tag. The number never repeats
under a key, and it is part of the nonce. So a record that was changed, repeated, left out or moved does not open.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rhino_core.errors import RemoteProtocolError
from worker_runtime.push.core.keys import SALT_BYTES, TRANSCRIPT_BYTES, Handshake, TrafficKey, traffic_keys
from worker_runtime.push.core.session import NOTHING, Piece

RECORD_BYTES = 512 * 1024  # plain bytes of a record at most
TAG_BYTES = 16
HEAD = struct.Struct("<IIQ")  # plain bytes, kind, number of the record
DATA, FINISHED = 0, 1  # kinds
FINISHED_BYTES = HEAD.size + TRANSCRIPT_BYTES + TAG_BYTES
_JOINED_BYTES = 32 * 1024  # smaller pieces become one record: a copy costs less than a record


class TamperedError(RemoteProtocolError):
    """Bytes on the wire are not those that the other end has sent. `kind`: one of KINDS."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


# Of alarms. "tag": bytes were changed, or come from another stream. "order": repeated, missing or moved. "length": more
# than the protocol allows. "handshake": the other end does not have the key. "cut": the connection ended in the middle
# of a record, which also happens when the other process is stopped.
TAG, ORDER, LENGTH, HANDSHAKE, CUT = KINDS = ("tag", "order", "length", "handshake", "cut")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one key may be used for. Both ends must have the same."""

    records: int = 2**32
    plain_bytes: int = 2**40


LIMITS = Limits()


class _Direction:
    """Key, salt and counter of one direction."""

    def __init__(self, key: TrafficKey, limits: Limits) -> None:
        self._limits = limits
        self.number = 0  # of the next record
        self._use(key)

    def _use(self, key: TrafficKey) -> None:
        self._key = key
        self.cipher = AESGCM(key.key)
        self._salt = int.from_bytes(key.salt, "big")
        self._records = self._plain_bytes = 0

    def next(self, size: int) -> bytes:
        """The nonce of the next record, which has `size` plain bytes. Its key is `cipher`."""
        if self._records == self._limits.records or self._plain_bytes + size > self._limits.plain_bytes:
            self._use(self._key.next())
        self._records += 1
        self._plain_bytes += size
        nonce = (self._salt ^ self.number).to_bytes(SALT_BYTES, "big")
        self.number += 1
        return nonce


class RecordSealer:
    """The only place that seals records of its direction."""

    def __init__(self, key: TrafficKey, limits: Limits = LIMITS) -> None:
        self._direction = _Direction(key, limits)
        self._buffer = NOTHING

    def finished(self, transcript: bytes) -> bytes:
        """The first record: it proves that this end has the key."""
        return bytes(self._record(transcript, FINISHED))

    def seal(self, *pieces: Piece) -> Sequence[Piece]:
        size = sum(len(piece) for piece in pieces)
        if 0 < size <= _JOINED_BYTES:
            return (self._record(pieces[0] if len(pieces) == 1 else b"".join(pieces)),)
        return [self._record(part) for piece in pieces for part in _parts(piece)]

    def sealed(self, head: bytes, data: memoryview) -> Iterator[tuple[Piece, memoryview]]:
        """The head is a record of its own, so that the receiver can open the data to where they belong."""
        first = b"".join(self._record(part) for part in _parts(head))
        for part in _parts(data):
            if len(self._buffer) < len(part) + TAG_BYTES:
                self._buffer = memoryview(bytearray(len(part) + TAG_BYTES))
            sealed = self._buffer[: len(part) + TAG_BYTES]
            record_head = HEAD.pack(len(part), DATA, self._direction.number)
            nonce = self._direction.next(len(part))
            self._direction.cipher.encrypt_into(nonce, part, record_head, sealed)
            yield first + record_head, sealed
            first = b""
        if first:
            yield first, NOTHING

    def _record(self, data: Piece, kind: int = DATA) -> bytearray:
        head = HEAD.pack(len(data), kind, self._direction.number)
        record = bytearray(HEAD.size + len(data) + TAG_BYTES)
        record[: HEAD.size] = head
        nonce = self._direction.next(len(data))
        with memoryview(record) as view:
            self._direction.cipher.encrypt_into(nonce, data, head, view[HEAD.size :])
        return record


class RecordOpener:
    """Bytes of the wire, up to the next complete record, and plain bytes of one record that did not fit."""

    def __init__(self, key: TrafficKey, limits: Limits = LIMITS) -> None:
        self._direction = _Direction(key, limits)
        self._wire = NOTHING
        self._start = self._end = 0  # of the bytes in `_wire` that are not opened yet
        self._plain = NOTHING  # of an opened record, not taken yet
        self._failure: TamperedError | None = None

    def check_finished(self, record: bytes, transcript: bytes) -> None:
        """Raises TamperedError unless the first record of the other end proves that it has the key."""
        view = memoryview(record)
        try:
            size, head = self._checked(view, FINISHED)
            nonce = self._direction.next(size)  # may replace the cipher
            opened = self._direction.cipher.decrypt(nonce, record[HEAD.size :], head)
        except (InvalidTag, TamperedError):
            opened = b""
        if len(record) != FINISHED_BYTES or opened != transcript:
            raise self._fail(HANDSHAKE, "the other end does not have the key of this stream")

    def feed(self, data: bytes) -> bytes:
        found = [bytes(self._plain)] if self._plain else []
        self._plain = NOTHING
        if self._start < self._end or not data:
            self._room(len(data))[: len(data)] = data
            self._end += len(data)
            self._open_all(found)
        else:  # open the records where they are; only the rest is copied
            wire, self._wire = self._wire, memoryview(data)
            self._start, self._end = 0, len(data)
            try:
                self._open_all(found)
            finally:
                rest, self._wire, self._start, self._end = self._wire[self._start :], wire, 0, 0
            self._room(len(rest))[: len(rest)] = rest
            self._end = len(rest)
        return found[0] if len(found) == 1 else b"".join(found)

    def take(self, into: memoryview) -> int:
        if not self._plain:
            if not (size := self._complete_bytes()):
                return 0
            if size <= len(into):
                self._opened(size, into[:size])
                return size
            self._plain = memoryview(self._opened(size))
        count = min(len(into), len(self._plain))
        into[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count

    def target(self, into: memoryview) -> memoryview:
        """If all of `into` is due, at least one record with all its bytes is due, too."""
        wanted = HEAD.size + min(len(into), RECORD_BYTES) + TAG_BYTES
        size = max(wanted - (self._end - self._start), self.missing_bytes)
        return self._room(size)[:size]

    def arrived(self, count: int) -> None:
        self._end += count

    def end(self) -> None:
        if self._start < self._end:
            raise self._fail(CUT, "the connection has ended in the middle of a record")

    @property
    def missing_bytes(self) -> int:
        buffered = self._end - self._start
        if not buffered:
            return 0
        if buffered < HEAD.size:
            return HEAD.size - buffered
        return max(0, HEAD.size + self._size() + TAG_BYTES - buffered)

    # ------------------------------------------------------------ inside

    def _size(self) -> int:
        size: int = HEAD.unpack_from(self._wire, self._start)[0]
        return min(size, RECORD_BYTES)

    def _room(self, size: int) -> memoryview:
        """Where the next bytes of the wire go: at least `size`."""
        if self._start == self._end:
            self._start = self._end = 0
        if len(self._wire) - self._end < size:
            kept = self._wire[self._start : self._end]
            wire = memoryview(bytearray(max(len(kept) + size, min(2 * len(self._wire), RECORD_BYTES))))
            wire[: len(kept)] = kept
            self._wire, self._start, self._end = wire, 0, len(kept)
        return self._wire[self._end :]

    def _complete_bytes(self) -> int:
        """The plain bytes of the next record if all of it is here, else 0. Raises TamperedError."""
        if self._failure is not None:
            raise self._failure
        if self._end - self._start < HEAD.size:
            return 0
        size, _ = self._checked(self._wire[self._start : self._start + HEAD.size], DATA)
        return size if self._end - self._start >= HEAD.size + size + TAG_BYTES else 0

    def _checked(self, record: memoryview, expected: int) -> tuple[int, bytes]:
        """The plain bytes of a record of this kind, and its head. The head is in clear: it counts once the tag does."""
        if len(record) < HEAD.size:
            raise self._fail(CUT, f"a record of {len(record)} bytes")
        size, kind, number = HEAD.unpack_from(record)
        if not 0 < size <= RECORD_BYTES:
            raise self._fail(LENGTH, f"a record of {size} bytes; 1 to {RECORD_BYTES} are allowed")
        if (kind, number) != (expected, self._direction.number):
            expectation = f"record {self._direction.number} of kind {expected} is next"
            raise self._fail(ORDER, f"record {number} of kind {kind}, but {expectation}")
        return size, bytes(record[: HEAD.size])

    def _open_all(self, found: list[bytes]) -> None:
        while size := self._complete_bytes():
            found.append(self._opened(size))

    def _opened(self, size: int, into: memoryview | None = None) -> bytes:
        """The next record, which is complete. What `into` has after a TamperedError is worth nothing."""
        body, end = self._start + HEAD.size, self._start + HEAD.size + size + TAG_BYTES
        head, sealed = bytes(self._wire[self._start : body]), self._wire[body:end]
        number, nonce = self._direction.number, self._direction.next(size)
        plain = b""
        try:
            if into is None:
                plain = self._direction.cipher.decrypt(nonce, sealed, head)
            else:
                self._direction.cipher.decrypt_into(nonce, sealed, head, into)
        except InvalidTag:
            raise self._fail(TAG, f"record {number} was changed on its way, or comes from another stream") from None
        self._start = end
        return plain

    def _fail(self, kind: str, message: str) -> TamperedError:
        self._failure = TamperedError(kind, message)
        return self._failure


def sender_ends(secret: bytes, handshake: Handshake, limits: Limits = LIMITS) -> tuple[RecordSealer, RecordOpener]:
    """Both directions of the sender's end."""
    from_sender, from_receiver = traffic_keys(secret, handshake)
    return RecordSealer(from_sender, limits), RecordOpener(from_receiver, limits)


def receiver_ends(secret: bytes, handshake: Handshake, limits: Limits = LIMITS) -> tuple[RecordSealer, RecordOpener]:
    """Both directions of the receiver's end."""
    from_sender, from_receiver = traffic_keys(secret, handshake)
    return RecordSealer(from_receiver, limits), RecordOpener(from_sender, limits)


def _parts(piece: Piece) -> Iterator[memoryview]:
    view = memoryview(piece)
    return (view[start : start + RECORD_BYTES] for start in range(0, len(view), RECORD_BYTES))
