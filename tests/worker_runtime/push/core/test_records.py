"""Records of push streams: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker_runtime.push.core.noise import TAG_BYTES, CipherState
from worker_runtime.push.core.records import (
    CUT,
    HEAD_BYTES,
    LENGTH,
    RECORD_BYTES,
    REKEY_BYTES,
    TAG,
    Opener,
    PlainOpener,
    PlainSealer,
    RecordOpener,
    RecordSealer,
    Sealer,
    TamperedError,
    initiator_session,
    responder_session,
)

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
SHORT = 200  # bytes under one key
contents = st.lists(st.binary(min_size=1, max_size=100), min_size=1, max_size=8)


def ends(rekey_bytes: int = SHORT) -> tuple[RecordSealer, RecordOpener]:
    """Of one direction, after the handshake."""
    return RecordSealer(CipherState(KEY), rekey_bytes), RecordOpener(CipherState(KEY), rekey_bytes)


def records(sealer: RecordSealer, plain: Sequence[bytes]) -> list[bytes]:
    return [b"".join(sealer.seal(piece)) for piece in plain]


def opened_by_loop(opener: Opener, wire: bytes, split: Callable[[int], int]) -> bytes:
    found = b""
    while wire:
        count = max(1, split(len(wire)))
        found += opener.feed(wire[:count])
        wire = wire[count:]
    return found


def opened_by_thread(opener: Opener, wire: bytes, split: Callable[[int], int], sizes: Callable[[int], int]) -> bytes:
    """As inbound.py reads: buffers of any size, and as much of the wire as the opener asks for."""
    found = b""
    while True:
        into = memoryview(bytearray(max(1, sizes(300))))
        while not (count := opener.take(into)):
            target = opener.target(into)
            assert target
            arrived = min(len(wire), len(target), max(1, split(len(target))))
            if not arrived:
                return found
            target[:arrived], wire = wire[:arrived], wire[arrived:]
            opener.arrived(arrived)
        found += into[:count]


@given(contents, st.data(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_what_goes_in_comes_out(plain: list[bytes], data: st.DataObject, plainly: bool) -> None:
    sealer: Sealer
    opener: Opener
    sealer, opener = (PlainSealer(), PlainOpener()) if plainly else ends()
    wire = b"".join(bytes(piece) for part in plain for piece in sealer.seal(part))

    def split(most: int) -> int:
        return data.draw(st.integers(1, most))

    first = data.draw(st.integers(0, len(wire)))
    found = opened_by_loop(opener, wire[:first], split)
    found += opened_by_thread(opener, wire[first:], split, split)
    assert found == b"".join(plain)
    opener.end()


@given(contents, st.data())
def test_a_thread_and_the_event_loop_may_take_turns(plain: list[bytes], data: st.DataObject) -> None:
    sealer, opener = ends()
    wire, found = b"".join(records(sealer, plain)), b""
    while wire:
        count = data.draw(st.integers(1, len(wire)))
        piece, wire = wire[:count], wire[count:]
        if data.draw(st.booleans()):
            found += opener.feed(piece)
        else:
            found += opened_by_thread(opener, piece, lambda most: most, lambda _: data.draw(st.integers(1, 150)))
    assert found == b"".join(plain)


def bits(record: bytes) -> list[bytes]:
    return [
        record[:at] + bytes([record[at] ^ 1 << bit]) + record[at + 1 :] for at in range(len(record)) for bit in range(8)
    ]


def all_of(opener: RecordOpener, wire: bytes) -> None:
    """The last bytes before the connection ends."""
    opener.feed(wire)
    opener.end()


def refused(opener: RecordOpener, wire: bytes) -> TamperedError:
    """The reason. The opener opens nothing any more."""
    with pytest.raises(TamperedError) as raised:
        all_of(opener, wire)
    with pytest.raises(TamperedError):
        opener.feed(b"")
    with pytest.raises(TamperedError):
        opener.take(memoryview(bytearray(10)))
    return raised.value


@given(st.binary(min_size=1, max_size=40), st.integers(min_value=0))
def test_no_changed_bit_is_opened(plain: bytes, which: int) -> None:
    sealer, opener = ends()
    (record,) = records(sealer, [plain])
    changed = bits(record)
    refused(opener, changed[which % len(changed)])


def test_no_bit_of_a_record_may_change() -> None:
    for changed in bits(records(ends()[0], [b"state"])[0]):
        for by_thread in (False, True):
            _, opener = ends()
            wire = changed + bytes(600_000)  # a length that was changed waits for more
            with pytest.raises(TamperedError):
                opened_by_thread(opener, wire, int, lambda _: 5) if by_thread else opener.feed(wire)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=2, max_size=8), st.data())
def test_records_come_once_and_in_order(plain: list[bytes], data: st.DataObject) -> None:
    sealer, opener = ends()
    sent = records(sealer, plain)
    numbers = list(range(len(sent)))
    some = st.lists(st.sampled_from(numbers), max_size=10)
    arriving = data.draw(some.filter(lambda some: some != numbers[: len(some)]))
    right = next(at for at, number in enumerate(arriving) if number != at)
    assert opener.feed(b"".join(sent[:right])) == b"".join(plain[:right])
    error = refused(opener, b"".join(sent[number] for number in arriving[right:]))
    assert error.kind == TAG


@given(contents, st.data())
def test_a_record_that_lacks_bytes_is_not_opened(plain: list[bytes], data: st.DataObject) -> None:
    """Either the next record shows it, or the end of the connection."""
    sealer, opener = ends(REKEY_BYTES)
    *whole, last = records(sealer, plain)
    (following,) = records(sealer, [bytes(200)])
    kept = data.draw(st.integers(1, len(last) - 1))
    assert opener.feed(b"".join(whole)) == b"".join(plain[:-1])
    cut = last[:kept]
    if data.draw(st.booleans()):
        assert refused(opener, cut).kind == CUT
    else:
        refused(opener, cut + following)


@given(contents, st.data())
def test_bytes_that_somebody_adds_are_not_opened(plain: list[bytes], data: st.DataObject) -> None:
    sealer, opener = ends()
    wire = b"".join(records(sealer, plain))
    at = data.draw(st.integers(0, len(wire)))
    added = wire[:at] + data.draw(st.binary(min_size=1, max_size=60)) + wire[at:]
    if added[: len(wire)] == wire:
        opener.feed(wire)
        added = added[len(wire) :]
    refused(opener, added)


def test_a_length_that_no_record_has_is_refused_before_its_bytes_arrive() -> None:
    for size in range(TAG_BYTES + 1):
        _, opener = ends()
        assert refused(opener, size.to_bytes(HEAD_BYTES, "big")).kind == LENGTH


def test_another_key_opens_nothing() -> None:
    sealer, _ = ends()
    opener = RecordOpener(CipherState(OTHER_KEY))
    assert refused(opener, records(sealer, [b"state"])[0]).kind == TAG


def test_records_of_one_direction_are_not_those_of_the_other() -> None:
    """A message that is sent back to its author."""
    for forth in (True, False):
        one, other = initiator_session(ciphers()), responder_session(ciphers())
        if not forth:
            one, other = other, one
        record = b"".join(one.sealer.seal(b"state"))
        assert other.opener.feed(record) == b"state"
        with pytest.raises(TamperedError):
            one.opener.feed(record)


def ciphers() -> tuple[CipherState, CipherState]:
    return CipherState(KEY), CipherState(OTHER_KEY)


@pytest.mark.parametrize("rekey_bytes", [42, 63, 21, 20], ids=["2 records", "3 records", "1 record", "less than one"])
def test_both_ends_replace_a_key_at_its_limit(rekey_bytes: int) -> None:
    sealer, opener = ends(rekey_bytes)
    keys = []
    for number in range(20):
        (record,) = records(sealer, [bytes([number]) * 5])
        assert len(record) == HEAD_BYTES + 21
        assert opener.feed(record) == bytes([number]) * 5
        keys.append(sealer._direction._cipher.k)
        assert opener._direction._cipher.k == keys[-1]
    under_one_key = max(1, rekey_bytes // 21)
    assert keys == [key for key in dict.fromkeys(keys) for _ in range(under_one_key)][:20]
    assert len(set(keys)) == -(-20 // under_one_key)


def test_no_number_comes_twice() -> None:
    """Not even under different keys."""
    sealer, _ = ends()
    seen = []
    for _ in range(50):
        seen.append(sealer._direction._cipher.n)
        sealer.seal(bytes(30))
    assert seen == list(range(50))


def test_a_key_encrypts_less_than_the_standard_allows() -> None:
    """A message has at least 17 bytes, so 2^36 of them are fewer than 2^32 messages, and 2^32 blocks."""
    assert REKEY_BYTES == 2**36
    assert REKEY_BYTES // (TAG_BYTES + 1) < 2**32


def sizes(wire: bytes) -> list[int]:
    """The plain bytes of each record."""
    found = []
    while wire:
        size = int.from_bytes(wire[:HEAD_BYTES], "big")
        found.append(size - TAG_BYTES)
        wire = wire[HEAD_BYTES + size :]
    return found


def test_pieces_are_joined_or_split_to_records() -> None:
    sealer, opener = ends(REKEY_BYTES)
    small = b"".join(sealer.seal(b"head", memoryview(b"data")))
    assert sizes(small) == [8]
    large = bytes(range(256)) * 500
    wire = b"".join(sealer.seal(b"head", large))
    assert sizes(wire) == [4, RECORD_BYTES, len(large) - RECORD_BYTES]
    assert opener.feed(small) == b"headdata"
    assert opener.feed(wire) == b"head" + large
    assert list(sealer.seal()) == list(sealer.seal(b"")) == []


def test_a_thread_seals_a_part_in_one_buffer() -> None:
    sealer, opener = ends(REKEY_BYTES)
    data = bytes(range(256)) * 5000
    found = b""
    for head, data_ in [pair for part in (data, data[:100]) for pair in sealed(sealer, b"head", part)]:
        found += opener.feed(head + data_)
    for head, data_ in sealed(sealer, b"alone", b""):
        found += opener.feed(head + data_)
    assert sealed(sealer, b"", b"") == []
    assert found == b"head" + data + b"head" + data[:100] + b"alone"


def sealed(sealer: RecordSealer, head: bytes, data: bytes) -> list[tuple[bytes, bytes]]:
    return [(bytes(first), bytes(second)) for first, second in sealer.sealed(head, memoryview(data))]


def test_data_are_opened_to_where_they_belong() -> None:
    """A thread asks for as many bytes as a piece of a file has on the wire: it waits once for each piece."""
    sealer, opener = ends(REKEY_BYTES)
    data = bytes(512 * 1024)
    into = memoryview(bytearray(len(data)))
    for _ in range(3):
        (wire,) = sealer.seal(data)
        assert opener.take(into) == 0
        target = opener.target(into)
        assert len(target) == len(wire)
        target[:] = wire
        opener.arrived(len(wire))
        assert opener.take(into) == len(data)
    assert opener.take(into) == 0
    opener.end()


def test_a_record_that_fits_no_buffer_comes_in_parts() -> None:
    sealer, opener = ends(REKEY_BYTES)
    wire = b"".join(records(sealer, [b"one", b"two-two", b"three"]))
    into = memoryview(bytearray(5))
    opener.target(memoryview(bytearray(100)))[: len(wire)] = wire
    opener.arrived(len(wire))
    found = []
    while count := opener.take(into):
        found.append(bytes(into[:count]))
    assert found == [b"one", b"two-t", b"wo", b"three"]
