"""The receiver's side of a push stream, without sockets: any way in which bytes arrive gives the same events."""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core.errors import LocalProtocolError, RemoteProtocolError, UnavailableError
from rhino_pb import peer_pb2
from tests.worker_runtime.push.core.frames import (
    CREDIT,
    Counted,
    Player,
    begin,
    content,
    entry,
    opened,
    part,
    reply,
    returned,
    sst,
)
from worker_runtime.push.core import receiver as module
from worker_runtime.push.core import sender
from worker_runtime.push.core.framing import LARGE_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX, packed
from worker_runtime.push.core.incoming import FILE_TRANSITIONS, DataReceived, DecisionDue, FileBegun, FileReceived
from worker_runtime.push.core.receiver import FILES_MAX, PushReceiver, State

PIECE_BYTES = 64


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", PIECE_BYTES)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, frozenset[int], dict[int, bytes]]:
    """The bytes of a correct sender, the files that the receiver does not want, and all files."""
    frames, files, unwanted = [], {}, set()
    for transfer in range(1, draw(st.integers(1, 5)) + 1):
        data = files[transfer] = content(draw(st.integers(0, 5 * PIECE_BYTES)), transfer)
        frames.append(begin(transfer, sst(transfer, data)))
        cuts = sorted(draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=3)))
        edges = [0, *(cut for cut in cuts if cut < len(data)), len(data)]
        frames += [part(transfer, start, data[start:end]) for start, end in itertools.pairwise(edges) if end > start]
        if draw(st.booleans()):
            unwanted.add(transfer)
        if draw(st.booleans()):
            frames.append(returned(draw(st.integers(0, 100))))
    return b"".join(frames), frozenset(unwanted), files


@given(stream=streams(), cuts=st.lists(st.integers(0, 2000), max_size=30), direct=st.booleans())
@settings(deadline=None)
def test_events_do_not_depend_on_how_the_bytes_arrive(
    stream: tuple[bytes, frozenset[int], dict[int, bytes]], cuts: list[int], direct: bool
) -> None:
    data, unwanted, files = stream
    at_once, in_pieces = (Player(opened(), unwanted=unwanted) for _ in range(2))
    at_once.feed(data)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        in_pieces.feed(data[start:end], direct=direct)
    assert in_pieces.said == at_once.said
    assert not in_pieces.core.busy
    assert not in_pieces.core.unfinished
    for transfer, expected in files.items():
        whole = [event[2] for event in at_once.said if event[:2] == ("whole", transfer)]
        pieces = b"".join(event[2] for event in at_once.said if event[:2] == ("data", transfer))
        assert whole == [expected] if whole else pieces == expected
        if not whole:
            assert (("complete", transfer) in at_once.said) == (transfer not in unwanted)


@given(stream=streams(), end=st.integers(0, 3000))
@settings(deadline=None)
def test_a_truncated_stream_gives_the_first_events_and_no_error(
    stream: tuple[bytes, frozenset[int], dict[int, bytes]], end: int
) -> None:
    data, unwanted, _ = stream
    whole, truncated = (Player(opened(), unwanted=unwanted) for _ in range(2))
    whole.feed(data)
    truncated.feed(data[: end % (len(data) + 1)])
    assert truncated.said == whole.said[: len(truncated.said)]
    truncated.core.close()
    assert truncated.core.state is State.CLOSED
    assert truncated.core.next_event() is None


@given(garbage=st.binary(max_size=300), before=streams())
@settings(deadline=None)
def test_garbage_is_waited_for_or_refused_with_a_clear_error(
    garbage: bytes, before: tuple[bytes, frozenset[int], dict[int, bytes]]
) -> None:
    player, refused = Player(opened()), ""
    player.feed(before[0])
    try:
        player.feed(garbage)
    except (RemoteProtocolError, UnavailableError) as error:
        refused = str(error) or "no reason"
    assert refused != "no reason"
    assert (player.core.state is State.CLOSED) is bool(refused)
    assert not refused or player.core.next_event() is None


@pytest.mark.parametrize(
    ("frames", "complaint"),
    [
        (part(1, 0, b"x"), "data of transfer 1, which has not begun or is complete"),
        (begin(1, sst(1, b"abc")) + part(1, 1, b"bc"), "2 bytes at 1, expected 0"),
        (begin(1, sst(1, b"abc")) + part(1, 0, b"abcd"), "4 bytes at 0 of 3"),
        (begin(1, sst(1, bytes(2000))) + part(1, 0, bytes(1001)), "1001 bytes sent with a credit of 1000"),
        (returned(1001), "1001 bytes sent with a credit of 1000"),
        (begin(1, sst(1, b"abc"))[:8] + b"\xff" * 200, "not a frame of a push stream"),
        (struct.pack("<II", 2**31, 0), f"a message of {2**31} bytes, at most {LARGE_MESSAGE_BYTES_MAX} are allowed"),
        (packed(peer_pb2.PushFrame()), "unexpected frame None with 0 bytes of data"),
        (packed(peer_pb2.PushFrame(returned=peer_pb2.PushReturn()), 5), "unexpected frame returned with 5 bytes"),
        (b"".join(begin(number, sst(number, b"a")) for number in range(FILES_MAX + 1)), "more than 64 transfers"),
    ],
)
def test_a_sender_that_breaks_the_protocol_learns_how(frames: bytes, complaint: str) -> None:
    player = Player(opened(credit_bytes=1000))
    with pytest.raises(RemoteProtocolError, match=complaint):
        player.feed(frames)
    assert player.core.state is State.CLOSED


def test_files_given_up_halfway_are_forgotten_when_there_are_too_many() -> None:
    unwanted = frozenset(range(1, 4 * FILES_MAX))
    player = Player(opened(), unwanted=unwanted)
    for transfer in sorted(unwanted):
        player.feed(begin(transfer, sst(transfer, content(100))) + part(transfer, 0, content(10)))
    assert not player.core.busy


def test_a_resumed_file_continues_at_its_offset_and_known_bytes_are_thrown_away() -> None:
    core, data = opened(), content(300)
    core.receive(begin(1, sst(1, data)))
    event = core.next_event()
    assert isinstance(event, FileBegun)
    assert core.accept(event.file, 200) == reply(resume=peer_pb2.PushResume(transfer=1, offset=200))
    player = Player(core)
    player.feed(part(1, 0, data[:250]) + part(1, 250, data[250:]))
    wanted = [event[2] for event in player.said if event[0] == "data" and event[3]]
    assert b"".join(wanted) == data[200:]
    assert player.said[-1] == ("complete", 1)


def test_a_sender_that_asks_hears_the_offset_even_if_it_is_0() -> None:
    core = opened()
    core.receive(begin(1, sst(1, b"abc"), ask_offset=True))
    event = core.next_event()
    assert isinstance(event, FileBegun)
    assert core.accept(event.file) == reply(resume=peer_pb2.PushResume(transfer=1, offset=0))
    player = Player(core)
    player.feed(part(1, 0, b"abc"))
    assert player.said == [("data", 1, b"abc", True), ("complete", 1)]


def test_a_file_that_is_here_under_another_name_needs_no_bytes() -> None:
    core = opened()
    core.receive(begin(1, sst(1, b"abc"), ask_offset=True))
    event = core.next_event()
    assert isinstance(event, FileBegun)
    core.complete(event.file)
    assert not core.busy
    core.receive(part(1, 0, b"abc"))
    with pytest.raises(RemoteProtocolError, match="not begun or is complete"):
        core.next_event()


def test_a_file_whose_write_fails_is_discarded_to_its_end() -> None:
    core = opened()
    core.receive(begin(1, sst(1, content(200))) + part(1, 0, content(200)))
    kinds = []
    while (event := core.next_event()) is not None:
        kinds.append(type(event).__name__)
        if isinstance(event, DecisionDue):
            core.accept(event.file)
        if isinstance(event, DataReceived):
            assert event.wanted is (len(kinds) <= 3)
            if event.wanted:
                core.discard(event.file)
    assert kinds == ["FileBegun", "DecisionDue", *["DataReceived"] * 4]
    assert not core.busy


def test_the_bytes_of_an_undecided_file_are_not_given_out() -> None:
    core = opened()
    core.receive(begin(1, sst(1, content(200))) + part(1, 0, content(200)))
    assert isinstance(core.next_event(), FileBegun)
    assert isinstance(core.next_event(), DecisionDue)
    with pytest.raises(LocalProtocolError, match="neither accepted nor discarded"):
        core.next_event()


def test_the_first_grant_is_the_welcome_and_the_next_ones_are_credit() -> None:
    core = PushReceiver(Counted())
    assert core.grant(0) == reply(welcome=peer_pb2.PushWelcome(credit_bytes=0))
    assert core.grant(7) == reply(credit=peer_pb2.PushCredit(bytes=7))
    assert core.credit_bytes == 7


def test_large_messages_take_their_memory_and_give_it_back() -> None:
    memory = Counted()
    core = PushReceiver(memory)
    core.grant(CREDIT)
    names = tuple(f"SSTs/{number:06d}-{'u' * 36}.sst" for number in range(30_000))
    frame = begin(1, entry("1_id.zip", b"zip", references=names))
    core.receive(frame[:100])
    assert core.next_event() is None
    assert memory.reserved_bytes == len(frame) - 8 > MESSAGE_BYTES_MAX
    core.receive(frame[100:] + part(1, 0, b"zip"))
    assert isinstance(core.next_event(), FileReceived)
    assert memory.reserved_bytes == 0
    core.receive(begin(2, entry("SSTs/000001-x.sst", b"zip", references=names)))
    with pytest.raises(RemoteProtocolError, match="announces no zip or changelog"):
        core.next_event()
    assert memory.reserved_bytes == 0
    unfinished = PushReceiver(memory)
    unfinished.grant(CREDIT)
    unfinished.receive(frame[:100])
    unfinished.next_event()
    unfinished.close()
    assert memory.reserved_bytes == 0


def test_a_large_message_needs_memory() -> None:
    core = opened()
    core.receive(struct.pack("<II", MESSAGE_BYTES_MAX + 1, 0))
    with pytest.raises(UnavailableError):
        core.next_event()


def test_a_file_of_any_size_takes_one_buffer() -> None:
    core, size = opened(), 1 << 29
    core.receive(begin(1, replace(sst(1, b""), size_bytes=size)))
    assert isinstance(core.next_event(), FileBegun)
    head = packed(peer_pb2.PushFrame(data=peer_pb2.PushData(transfer=1)), size)
    core.receive(head)
    event = core.next_event()
    assert isinstance(event, DecisionDue)
    core.accept(event.file)
    bases = set()
    for _ in range(100):
        assert core.next_event() is None
        buffer = core.buffer()
        assert buffer is not None
        assert len(buffer) == PIECE_BYTES
        bases.add(id(buffer.obj))
        core.filled(len(buffer))
        assert isinstance(core.next_event(), DataReceived)
    assert len(bases) == 1


def test_the_diagrams_of_the_documents_are_those_of_the_tables() -> None:
    page = (Path(__file__).parents[4] / "docs" / "design" / "push-transport.md").read_text()
    for table in (module.TRANSITIONS, FILE_TRANSITIONS, sender.TRANSITIONS, sender.FILE_TRANSITIONS):
        assert f"```mermaid\n{table.diagram()}\n```" in page


def test_every_state_of_the_tables_can_be_reached() -> None:
    for table in (module.TRANSITIONS, FILE_TRANSITIONS, sender.TRANSITIONS, sender.FILE_TRANSITIONS):
        reached: set[Enum] = {table.first}
        while more := {after for (before, _), after in table.rows.items() if before in reached} - reached:
            reached |= more
        started_elsewhere = {sender.FileState.SENDING}
        assert reached | started_elsewhere >= set(type(table.first))
