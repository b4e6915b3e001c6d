"""The bytes of a push stream between the messages and the wire, without I/O.

There is one `Sealer` and one `Opener` for each end of a stream. Without encryption the bytes stay as they are. With it
they travel in records: two bytes with the length of a Noise transport message, big-endian, then the message. So a
changed, repeated, omitted or moved record does not open. docs/design/push-encryption.md specifies them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag

from rhino_core.errors import RemoteProtocolError
from worker_runtime.push.core.noise import MESSAGE_BYTES_MAX, TAG_BYTES, CipherState

Piece = bytes | bytearray | memoryview
NOTHING = memoryview(bytearray())
HEAD_BYTES = 2
OVERHEAD_BYTES = HEAD_BYTES + TAG_BYTES
RECORD_BYTES = MESSAGE_BYTES_MAX - TAG_BYTES  # plain bytes of a record at most
BUFFER_BYTES = 512 * 1024  # of the wire that are kept at least, once an opener has needed a buffer
REKEY_BYTES = 2**36  # of messages under one key, with their tags. So these are fewer than 2^32 messages
_JOINED_BYTES = 32 * 1024  # smaller pieces become one record: a copy costs less than a record


class TamperedError(RemoteProtocolError):
    """Bytes on the wire differ from those sent by the other end. `kind`: one of KINDS."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


# Of alarms. "tag": bytes were changed, repeated, left out or moved, or come from another stream. "length": less than a
# record has. "handshake": the other end does not have the secret, or means another stream. "unfinished": a connection
# has presented a token and then no handshake. "cut": the connection ended in the middle of a record. The last two also
# happen when the other process is stopped.
TAG, LENGTH, HANDSHAKE, UNFINISHED, CUT = KINDS = ("tag", "length", "handshake", "unfinished", "cut")


class Session(NamedTuple):
    """Both directions of one end of a stream."""

    sealer: Sealer
    opener: Opener


# ---------------------------------------------------------------- plain


class PlainSealer:
    """Bytes as they are. The methods are those of `RecordSealer`."""

    def seal(self, *pieces: Piece) -> Sequence[Piece]:
        return pieces

    def sealed(self, head: bytes, data: memoryview) -> Iterator[tuple[Piece, memoryview]]:
        yield head, data


class PlainOpener:
    """Bytes as they are. They go to the caller's memory without a copy. The methods are those of `RecordOpener`."""

    missing_bytes = 0

    def __init__(self) -> None:
        self._arrived = 0

    def feed(self, data: bytes) -> bytes:
        return data

    def take(self, into: memoryview) -> int:
        count, self._arrived = self._arrived, 0
        return count

    def target(self, into: memoryview) -> memoryview:
        return into

    def arrived(self, count: int) -> None:
        self._arrived = count

    def end(self) -> None:
        return


def plain_session() -> Session:
    """Both directions of one end, without encryption."""
    return Session(PlainSealer(), PlainOpener())


# ---------------------------------------------------------------- encrypted


class _Direction:
    """The cipher of one direction. It gets another key before it would encrypt more than `rekey_bytes`."""

    def __init__(self, cipher: CipherState, rekey_bytes: int) -> None:
        self._cipher = cipher
        self._rekey_bytes = rekey_bytes
        self._bytes = 0  # of messages under this key

    def next(self, message_bytes: int) -> CipherState:
        """The cipher for the next message, of so many bytes with its tag."""
        if self._bytes + message_bytes > self._rekey_bytes:
            self._cipher.rekey()
            self._bytes = 0
        self._bytes += message_bytes
        return self._cipher


class RecordSealer:
    """The only sealer of records of its direction, outwards. Either an event loop or a thread uses it, never both."""

    def __init__(self, cipher: CipherState, rekey_bytes: int = REKEY_BYTES) -> None:
        self._direction = _Direction(cipher, rekey_bytes)
        self._buffer = NOTHING

    def seal(self, *pieces: Piece) -> Sequence[Piece]:
        """The bytes for the wire. They stay valid."""
        if len(pieces) > 1 and sum(map(len, pieces)) <= _JOINED_BYTES:
            pieces = (b"".join(pieces),)
        wire = memoryview(bytearray(sum(map(wire_bytes, pieces))))
        at = 0
        for piece in pieces:
            at += self._seal_into(wire[at:], piece)
        return (wire,) if at else ()

    def sealed(self, head: bytes, data: memoryview) -> Iterator[tuple[Piece, memoryview]]:
        """The bytes for the wire, head and data, in pairs. Each pair is valid until the next one.

        The head has records of its own, so the receiver can open the data directly into their place.
        """
        if len(self._buffer) < (size := wire_bytes(data)):
            self._buffer = memoryview(bytearray(size))
        first = b"".join(self.seal(head))
        self._seal_into(self._buffer, data)
        if first or size:
            yield first, self._buffer[:size]

    def _seal_into(self, wire: memoryview, plain: Piece) -> int:
        """Writes the records of these plain bytes. Returns how many bytes they have."""
        at = 0
        for start in range(0, len(plain), RECORD_BYTES):
            part = memoryview(plain)[start : start + RECORD_BYTES]
            size = len(part) + TAG_BYTES
            wire[at : at + HEAD_BYTES] = size.to_bytes(HEAD_BYTES, "big")
            at += HEAD_BYTES
            self._direction.next(size).encrypt_into(part, wire[at : at + size])
            at += size
        return at


def wire_bytes(plain: Piece) -> int:
    """How many bytes the records of these plain bytes have."""
    return len(plain) + _records(len(plain)) * OVERHEAD_BYTES


def _records(plain_bytes: int) -> int:
    return -(-plain_bytes // RECORD_BYTES)


class RecordOpener:
    """Bytes of the wire, up to the next complete record, and leftover plain bytes of one record.

    A thread and an event loop may use it in turns: it has the whole state. A changed byte raises TamperedError, and so
    does every later call.
    """

    def __init__(self, cipher: CipherState, rekey_bytes: int = REKEY_BYTES) -> None:
        self._direction = _Direction(cipher, rekey_bytes)
        self._number = 0  # of the next record
        self._wire = NOTHING
        self._start = self._end = 0  # of the bytes in `_wire` that are not opened yet
        self._plain = NOTHING  # of an opened record, not taken yet
        self._failure: TamperedError | None = None

    def feed(self, data: bytes) -> bytes:
        """Bytes from the wire in, all complete plain bytes out, perhaps none."""
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
        """Moves plain bytes to the front of `into`. Returns their number; 0: more bytes of the wire are needed."""
        count = 0
        if not self._plain:
            while (size := self._complete_bytes()) and count + size <= len(into):
                self._opened(size, into[count : count + size])
                count += size
            if count or not size:
                return count
            self._plain = memoryview(self._opened(size))
        count = min(len(into), len(self._plain))
        into[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count

    def target(self, into: memoryview) -> memoryview:
        """Memory for bytes of the wire after `take` has returned 0. As many as `into` needs are due: wait for them.

        If all of `into` is due, at least one record with all its bytes is due, too.
        """
        wanted = wire_bytes(into)
        size = max(wanted - (self._end - self._start), self.missing_bytes)
        return self._room(size)[:size]

    def arrived(self, count: int) -> None:
        """So many bytes of `target` are there."""
        self._end += count

    def end(self) -> None:
        """The connection has ended. Raises TamperedError in the middle of a record."""
        if self._start < self._end:
            raise self._fail(CUT, "the connection has ended in the middle of a record")

    @property
    def missing_bytes(self) -> int:
        """How many bytes of the wire the record under way lacks, as far as is known. 0: none is under way."""
        buffered = self._end - self._start
        if not buffered:
            return 0
        if buffered < HEAD_BYTES:
            return HEAD_BYTES - buffered
        return max(0, HEAD_BYTES + self._message_bytes() - buffered)

    # ------------------------------------------------------------ inside

    def _message_bytes(self) -> int:
        return self._wire[self._start] << 8 | self._wire[self._start + 1]

    def _room(self, size: int) -> memoryview:
        """Memory for the next bytes of the wire: at least `size`."""
        if self._start == self._end:
            self._start = self._end = 0
        if len(self._wire) - self._end < size:
            kept = self._wire[self._start : self._end]
            wire = memoryview(bytearray(max(len(kept) + size, min(2 * len(self._wire), BUFFER_BYTES))))
            wire[: len(kept)] = kept
            self._wire, self._start, self._end = wire, 0, len(kept)
        return self._wire[self._end :]

    def _complete_bytes(self) -> int:
        """The plain bytes of the next record if all of it is here, else 0. Raises TamperedError."""
        if self._failure is not None:
            raise self._failure
        if (buffered := self._end - self._start) < HEAD_BYTES:
            return 0
        message_bytes = self._message_bytes()
        if message_bytes <= TAG_BYTES:
            raise self._fail(LENGTH, f"record {self._number} has {message_bytes} bytes, and its tag {TAG_BYTES}")
        return message_bytes - TAG_BYTES if buffered >= HEAD_BYTES + message_bytes else 0

    def _open_all(self, found: list[bytes]) -> None:
        while size := self._complete_bytes():
            found.append(self._opened(size))

    def _opened(self, size: int, into: memoryview | None = None) -> bytes:
        """The next record, already complete. The content of `into` is worthless after a TamperedError."""
        body, end = self._start + HEAD_BYTES, self._start + HEAD_BYTES + size + TAG_BYTES
        sealed, cipher = self._wire[body:end], self._direction.next(size + TAG_BYTES)
        plain = b""
        try:
            if into is None:
                plain = cipher.decrypt(sealed)
            else:
                cipher.decrypt_into(sealed, into)
        except InvalidTag:
            what = f"record {self._number} was changed or moved on its way, or comes from another stream"
            raise self._fail(TAG, what) from None
        self._start, self._number = end, self._number + 1
        return plain

    def _fail(self, kind: str, message: str) -> TamperedError:
        self._failure = TamperedError(kind, message)
        return self._failure


Sealer = PlainSealer | RecordSealer
Opener = PlainOpener | RecordOpener


def initiator_session(ciphers: tuple[CipherState, CipherState]) -> Session:
    """Both directions of the sender's end. `ciphers`: as a handshake splits."""
    return Session(RecordSealer(ciphers[0]), RecordOpener(ciphers[1]))


def responder_session(ciphers: tuple[CipherState, CipherState]) -> Session:
    """Both directions of the receiver's end. `ciphers`: as a handshake splits."""
    return Session(RecordSealer(ciphers[1]), RecordOpener(ciphers[0]))
