"""What happens to the bytes of a push stream between the messages and the wire, without I/O.

There is one `Sealer` and one `Opener` for each end of a stream: plain here, records in records.py. A later form, such
as TLS in the kernel, leaves the bytes plain for this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

Piece = bytes | bytearray | memoryview
NOTHING = memoryview(bytearray())


class Sealer(Protocol):
    """One direction, outwards. Either an event loop or a thread uses it, never both."""

    def seal(self, *pieces: Piece) -> Sequence[Piece]:
        """The bytes for the wire. They stay valid."""
        ...

    def sealed(self, head: bytes, data: memoryview) -> Iterator[tuple[Piece, memoryview]]:
        """The bytes for the wire, head and data, in pairs. Each pair is valid until the next one."""
        ...


class Opener(Protocol):
    """One direction, inwards. A thread and an event loop may use it in turns: it has everything that is not done.

    Whatever somebody has changed raises TamperedError, and so does every later call.
    """

    def feed(self, data: bytes) -> bytes:
        """Bytes from the wire in, all plain bytes out that are complete, perhaps none."""
        ...

    def take(self, into: memoryview) -> int:
        """Moves plain bytes to the front of `into`. Returns their number; 0: more bytes of the wire are needed."""
        ...

    def target(self, into: memoryview) -> memoryview:
        """Where bytes of the wire go after `take` has returned 0. As many as `into` needs are due: wait for them."""
        ...

    def arrived(self, count: int) -> None:
        """So many bytes of `target` are there."""
        ...

    def end(self) -> None:
        """The connection has ended. Raises TamperedError if that was in the middle of something."""
        ...

    @property
    def missing_bytes(self) -> int:
        """How many bytes of the wire the record under way lacks, as far as is known. 0: none is under way."""
        ...


class Session(NamedTuple):
    """Both directions of one end of a stream."""

    sealer: Sealer
    opener: Opener


class PlainSealer:
    """Bytes as they are."""

    def seal(self, *pieces: Piece) -> Sequence[Piece]:
        return pieces

    def sealed(self, head: bytes, data: memoryview) -> Iterator[tuple[Piece, memoryview]]:
        yield head, data


class PlainOpener:
    """Bytes as they are. They go to where the caller wants them without a copy."""

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
    """Both directions of one end whose bytes are not encrypted."""
    return Session(PlainSealer(), PlainOpener())
