"""Records of push streams: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker_runtime.push.core.keys import SUITE, Handshake
from worker_runtime.push.core.records import (
    CUT,
    FINISHED_BYTES,
    HANDSHAKE,
    HEAD,
    LENGTH,
    ORDER,
    RECORD_BYTES,
    TAG,
    TAG_BYTES,
    Limits,
    RecordOpener,
    RecordSealer,
    TamperedError,
    receiver_ends,
    sender_ends,
)
from worker_runtime.push.core.session import Opener, PlainOpener, PlainSealer, Sealer

SECRET = bytes(range(32))
SHAKE = Handshake(SUITE, b"i" * 16, "bulk", "rhino://c/worker/a", "rhino://c/worker/b", b"s" * 32, b"r" * 32)
SHORT = Limits(records=3, plain_bytes=200)
contents = st.lists(st.binary(min_size=1, max_size=100), min_size=1, max_size=8)


def ends(limits: Limits = SHORT) -> tuple[RecordSealer, RecordOpener]:
    """Of the direction to the receiver, after the handshake."""
    (sealer, _), (_, opener) = sender_ends(SECRET, SHAKE, limits), receiver_ends(SECRET, SHAKE, limits)
    opener.check_finished(sealer.finished(SHAKE.transcript()), SHAKE.transcript())
    return sealer, opener


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
@settings(max_examples=200)
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


def test_no_bit_of_the_handshake_may_change() -> None:
    sealer, _ = sender_ends(SECRET, SHAKE)
    finished = sealer.finished(SHAKE.transcript())
    assert len(finished) == FINISHED_BYTES
    for changed in [*bits(finished), finished[:-1], b"", finished + b"x"]:
        _, opener = receiver_ends(SECRET, SHAKE)
        with pytest.raises(TamperedError) as raised:
            opener.check_finished(changed, SHAKE.transcript())
        assert raised.value.kind == HANDSHAKE
        with pytest.raises(TamperedError):
            opener.feed(b"")


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
    assert error.kind == ORDER


@given(contents, st.data())
def test_a_record_that_lacks_bytes_is_not_opened(plain: list[bytes], data: st.DataObject) -> None:
    """Either the next record shows it, or the end of the connection."""
    sealer, opener = ends(Limits())
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


def test_a_length_beyond_the_limit_is_refused_before_its_bytes_arrive() -> None:
    for size in (0, RECORD_BYTES + 1, 2**32 - 1):
        _, opener = ends()
        assert refused(opener, HEAD.pack(size, 0, 1)).kind == LENGTH


def test_a_changed_number_is_told_from_a_changed_byte() -> None:
    sealer, opener = ends()
    first, second = records(sealer, [b"one", b"two"])
    assert refused(opener, second).kind == ORDER
    _, opener = ends()
    assert refused(opener, first[:-1] + bytes([first[-1] ^ 1])).kind == TAG


@pytest.mark.parametrize(
    "changes",
    [
        {"sender": "rhino://c/worker/x"},
        {"receiver": "rhino://c/worker/x"},
        {"lane": "commit"},
        {"stream_id": b"j" * 16},
        {"suite": "other"},
        {"sender_random": b"t" * 32},
        {"receiver_random": b"t" * 32},
        # The same bytes, split otherwise.
        {"sender": "rhino://c/worker/arhino://c", "receiver": "/worker/b"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_keys_are_those_of_one_stream(changes: dict[str, str]) -> None:
    sealer, _ = sender_ends(SECRET, replace(SHAKE, **changes))  # type: ignore[arg-type]
    _, opener = receiver_ends(SECRET, SHAKE)
    with pytest.raises(TamperedError):
        opener.check_finished(sealer.finished(SHAKE.transcript()), SHAKE.transcript())


def test_another_secret_makes_other_keys() -> None:
    sealer, _ = sender_ends(SECRET[::-1], SHAKE)
    _, opener = receiver_ends(SECRET, SHAKE)
    with pytest.raises(TamperedError):
        opener.check_finished(sealer.finished(SHAKE.transcript()), SHAKE.transcript())


def test_records_of_one_direction_are_not_those_of_the_other() -> None:
    """A message that is sent back to its author."""
    sealer, opener = sender_ends(SECRET, SHAKE)
    with pytest.raises(TamperedError):
        opener.check_finished(sealer.finished(SHAKE.transcript()), SHAKE.transcript())


def test_a_proof_of_the_key_is_no_data_and_data_are_no_proof() -> None:
    sealer, _ = sender_ends(SECRET, SHAKE)
    _, opener = receiver_ends(SECRET, SHAKE)
    assert refused(opener, sealer.finished(SHAKE.transcript())).kind == ORDER
    sealer, _ = sender_ends(SECRET, SHAKE)
    _, opener = receiver_ends(SECRET, SHAKE)
    with pytest.raises(TamperedError):
        opener.check_finished(b"".join(sealer.seal(SHAKE.transcript())), SHAKE.transcript())


@pytest.mark.parametrize(
    "limits", [Limits(records=3), Limits(plain_bytes=10), Limits(records=1), Limits(plain_bytes=1)], ids=str
)
def test_a_key_is_replaced_at_its_limit(limits: Limits) -> None:
    sealer, opener = ends(limits)
    keys = set()
    for number in range(20):
        (record,) = records(sealer, [bytes([number]) * 5])
        assert opener.feed(record) == bytes([number]) * 5
        assert sealer._direction._key.key == opener._direction._key.key
        keys.add(sealer._direction._key.key)
        assert sealer._direction._records <= limits.records
    assert len(keys) >= 6


def test_no_nonce_comes_twice_under_a_key() -> None:
    direction = ends(SHORT)[0]._direction
    seen = set()
    for _ in range(100):
        nonce = direction.next(1)
        seen.add((direction._key.key, nonce))
    assert len(seen) == 100


def test_pieces_are_joined_or_split_to_records() -> None:
    sealer, opener = ends(Limits())
    small = sealer.seal(b"head", memoryview(b"data"))
    assert len(small) == 1
    large = bytes(range(256)) * 5000
    wire = sealer.seal(b"head", large)
    assert [len(piece) for piece in wire] == [
        size + HEAD.size + TAG_BYTES for size in (4, RECORD_BYTES, RECORD_BYTES, len(large) - 2 * RECORD_BYTES)
    ]
    assert opener.feed(bytes(small[0])) == b"headdata"
    assert opener.feed(b"".join(wire)) == b"head" + large
    assert sealer.seal() == []


def test_a_thread_seals_a_part_piece_by_piece_in_one_buffer() -> None:
    sealer, opener = ends(Limits())
    data = bytes(range(256)) * 5000
    found = b""
    for head, data_ in sealer.sealed(b"head", memoryview(data)):
        found += opener.feed(bytes(head) + bytes(data_))
    for head, data_ in sealer.sealed(b"alone", memoryview(b"")):
        found += opener.feed(bytes(head) + bytes(data_))
    assert list(sealer.sealed(b"", memoryview(b""))) == []
    assert found == b"head" + data + b"alone"


def test_data_are_opened_to_where_they_belong() -> None:
    """A thread asks for as many bytes as the record has: it waits once for each record, and never for too many."""
    sealer, opener = ends(Limits())
    data = bytes(RECORD_BYTES)
    into = memoryview(bytearray(RECORD_BYTES))
    for _ in range(3):
        (record,) = sealer.seal(data)
        assert opener.take(into) == 0
        target = opener.target(into)
        assert len(target) == len(record)
        target[:] = record
        opener.arrived(len(record))
        assert opener.take(into) == RECORD_BYTES
    opener.end()
