"""Targets for encrypted push streams: their records and their handshake, with somebody between the two ends.

Here a refusal is not enough: what the other end has not sent never comes out, and what was changed is noticed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from rhino_core.security.identity import Identity, Role
from tests.fuzz.meddler import Change, shake_hands
from worker_runtime.push.core.noise import CipherState
from worker_runtime.push.core.records import BUFFER_BYTES, RecordOpener, RecordSealer, Session, TamperedError
from worker_runtime.push.opening import SECRET_BYTES

A, B = (Identity("c", Role.WORKER, name) for name in "ab")
SECRET = bytes(range(SECRET_BYTES))
REKEY_BYTES = 400  # so that keys are replaced
BUFFER_BYTES_MAX = 2 * BUFFER_BYTES + 4096  # of an opener


def push_records(data: bytes, folder: Path) -> None:
    """The first byte says how the wire arrives. Then come the steps of `Wire`."""
    wire = Wire()
    sealer, opener = RecordSealer(CipherState(SECRET), REKEY_BYTES), RecordOpener(CipherState(SECRET), REKEY_BYTES)
    wire.make(sealer, data[1:])
    found = b""
    try:
        for plain in _arrive(opener, wire.bytes, data[0] if data else 0):
            found += plain
        opener.end()
    except TamperedError:
        assert wire.bytes not in wire.plain_until, "an alarm, though all records are as they were sent"
        _stays_failed(opener)
    else:
        assert wire.sent.startswith(wire.bytes), "the wire was changed, and nobody has noticed"
        assert len(found) == wire.plain_until[wire.bytes], "the last plain bytes are missing"
    assert wire.plain.startswith(found), "plain bytes that the sender has not sent"
    assert len(opener._wire) <= BUFFER_BYTES_MAX, "memory for bytes that have not come"


class Wire:
    """The records that a sender has sealed (`sent`), and what arrives of them (`bytes`)."""

    def __init__(self) -> None:
        self.plain = self.sent = self.bytes = b""
        self.plain_until = {b"": 0}  # by what was sent until the end of a record: the number of plain bytes

    def make(self, sealer: RecordSealer, steps: bytes) -> None:
        """A step has three bytes: what happens, and two numbers."""
        records = [b"-"]
        for at in range(0, len(steps) - 2, 3):
            kind, first, second = steps[at : at + 3]
            match kind % 8:
                case 0 | 1 | 2:  # the next record arrives
                    records.append(self._seal(sealer, bytes([second]) * (first + 1)))
                    self.bytes += records[-1]
                case 3:  # it is left out
                    records.append(self._seal(sealer, bytes([second]) * (first + 1)))
                case 4:  # a former one comes again
                    self.bytes += records[first % len(records)]
                case 5 if self.bytes:  # a byte is changed, unless `second` is 0
                    place = (first << 8 | second) % len(self.bytes)
                    self.bytes = self.bytes[:place] + bytes([self.bytes[place] ^ second]) + self.bytes[place + 1 :]
                case 6:  # the end is cut off
                    self.bytes = self.bytes[: max(0, len(self.bytes) - first)]
                case _:  # bytes of somebody else
                    self.bytes += steps[at + 1 : at + 3 + first % 40]

    def _seal(self, sealer: RecordSealer, plain: bytes) -> bytes:
        record = b"".join(map(bytes, sealer.seal(plain)))
        self.sent, self.plain = self.sent + record, self.plain + plain
        self.plain_until[self.sent] = len(self.plain)
        return record


def _arrive(opener: RecordOpener, wire: bytes, how: int) -> Iterator[bytes]:
    """Feeds the wire in pieces, from the event loop, from a thread, or from both in turns. Yields what is opened."""
    size, turns = how // 4 * 7 + 1, how % 4
    for number, start in enumerate(range(0, len(wire), size)):
        piece = wire[start : start + size]
        if turns == 0 or (turns == 1 and number % 2):
            yield opener.feed(piece)
        else:
            yield from _taken(opener, piece, 1 + how % 150)
    yield from _taken(opener, b"", 100)


def _taken(opener: RecordOpener, piece: bytes, most: int) -> Iterator[bytes]:
    """As the threads of inbound.py read."""
    into = memoryview(bytearray(most))
    while True:
        while count := opener.take(into):
            yield bytes(into[:count])
        if not piece:
            return
        target = opener.target(into)
        assert target, "a thread waits for no byte"
        arrived = min(len(piece), len(target))
        target[:arrived], piece = piece[:arrived], piece[arrived:]
        opener.arrived(arrived)


def _stays_failed(opener: RecordOpener) -> None:
    with contextlib.suppress(TamperedError):
        opener.take(memoryview(bytearray(10)))
        raise AssertionError("an opener that has failed goes on")
    with contextlib.suppress(TamperedError):
        opener.feed(b"x")
        raise AssertionError("an opener that has failed goes on")


def push_handshakes(data: bytes, folder: Path) -> None:
    """The first byte: what is done to which direction; the second: from which byte on; the others: with what."""
    change = Change(kind=data[0] // 2 % 4 if data else 0, place=data[1] if len(data) > 1 else 0, data=data[2:])
    to_receiver = bool(data and data[0] % 2)
    ends, was_changed = shake_hands(A, B, SECRET, change, to_receiver=to_receiver)
    if was_changed:
        assert not isinstance(ends[to_receiver], Session), "the end that got changed bytes goes on"
        return
    sender, receiver = ends
    assert isinstance(sender, Session), f"nobody has changed anything: {sender!r}"
    assert isinstance(receiver, Session), f"nobody has changed anything: {receiver!r}"
    for sealer, opener in ((sender.sealer, receiver.opener), (receiver.sealer, sender.opener)):
        assert opener.feed(b"".join(map(bytes, sealer.seal(b"state")))) == b"state"
