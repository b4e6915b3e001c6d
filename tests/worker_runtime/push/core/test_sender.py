"""The sender's side of a push stream, without sockets."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino_core.errors import RemoteProtocolError
from rhino_core.ids import Epoch, FileEntry, Lane, StoreId
from rhino_core.rpc.convert import epoch_to_pb, store_to_pb, worker_to_pb
from rhino_pb import peer_pb2
from tests.worker_runtime.push.core.frames import EPOCH, Player, begin, content, entry, opened, part, reply, returned
from tests.worker_runtime.scenario import worker
from worker_runtime.protocol import events as ev
from worker_runtime.push.core.framing import MESSAGE_BYTES_MAX, packed
from worker_runtime.push.core.sender import (
    GROUPS_AT_ONCE,
    Event,
    FileState,
    OutgoingFile,
    PushSender,
    State,
    Unblocked,
    Welcomed,
)


def offer(partition: int, number: int, size: int = 100) -> ev.OfferFile:
    data = content(size, number)
    file = entry(f"SSTs/{number:06d}-x.sst", data)
    file = FileEntry(StoreId("job", 0, partition, "default"), file.name, size, file.crc32c)
    return ev.OfferFile(worker("b"), file, Epoch(1, 1), (), Lane.BULK)


def welcome(credit_bytes: int = 1000) -> bytes:
    return reply(welcome=peer_pb2.PushWelcome(credit_bytes=credit_bytes))


def credit(credit_bytes: int) -> bytes:
    return reply(credit=peer_pb2.PushCredit(bytes=credit_bytes))


def resume(transfer: int, offset: int) -> bytes:
    return reply(resume=peer_pb2.PushResume(transfer=transfer, offset=offset))


def ack(file: FileEntry, member: str = "b") -> bytes:
    message = peer_pb2.PushAck(
        store=store_to_pb(file.store),
        name=file.name,
        epoch=epoch_to_pb(EPOCH),
        member=worker_to_pb(worker(member)),
        holds=True,
    )
    return reply(ack=message)


def refusal(file: FileEntry) -> bytes:
    message = peer_pb2.PushRefusal(
        store=store_to_pb(file.store),
        name=file.name,
        reason=peer_pb2.REFUSAL_REASON_STORAGE,
        current_epoch=epoch_to_pb(EPOCH),
        member=worker_to_pb(worker("b")),
    )
    return reply(refusal=message)


def feed(core: PushSender, data: bytes) -> list[Event]:
    core.receive(data)
    return list(iter(core.next_event, None))


def connected(credit_bytes: int = 1000) -> PushSender:
    core = PushSender("b")
    assert feed(core, welcome(credit_bytes)) == [Welcomed()]
    return core


def begun(core: PushSender, offered: ev.OfferFile, *, ask_offset: bool = False) -> OutgoingFile:
    core.offer(offered)
    assert core.next_offer() == offered
    return core.begin(offered, ask_offset=ask_offset)


def test_a_file_goes_in_parts_within_the_credit() -> None:
    core, offered = connected(120), offer(0, 1, 200)
    file, data = begun(core, offered), content(200, 1)
    sent = b""
    for expected in (50, 50, 20):
        assert core.next_file() is file
        one = core.part(file, 50)
        assert one.size == expected
        sent += one.head + data[one.offset : one.offset + one.size]
    assert core.next_file() is None, "no credit"
    assert feed(core, credit(500)) == [Unblocked()]
    assert core.next_file() is file
    last = core.part(file, 500)
    assert file.done
    core.end(file)
    assert core.idle
    assert sent + last.head + data[last.offset :] == (
        begin(1, offered.entry) + part(1, 0, data[:50]) + part(1, 50, data[50:100]) + part(1, 100, data[100:120])
        + part(1, 120, data[120:])
    )  # fmt: skip


def test_groups_take_turns_part_by_part() -> None:
    core = connected()
    for partition in range(GROUPS_AT_ONCE + 1):
        core.offer(offer(partition, 1))
        core.offer(offer(partition, 2))
    while (offered := core.next_offer()) is not None:
        core.begin(offered, ask_offset=False)
    order = []
    for _ in range(2 * GROUPS_AT_ONCE):
        file = core.next_file()
        assert file is not None
        core.part(file, 50)
        order.append(file.entry.store.partition)
        if file.done:
            core.end(file)
    assert order == [*range(GROUPS_AT_ONCE), *range(GROUPS_AT_ONCE)]
    assert core.next_offer() == offer(GROUPS_AT_ONCE, 1)


def test_a_file_that_asks_sends_its_begin_and_then_waits_for_the_offset() -> None:
    core, offered = connected(), offer(0, 1)
    file = begun(core, offered, ask_offset=True)
    assert core.next_file() is file
    assert core.part(file, 50).head == begin(1, offered.entry, ask_offset=True)
    assert not file.done
    assert core.next_file() is None
    assert feed(core, resume(1, 70)) == [Unblocked()]
    assert core.next_file() is file
    file.skip_known()
    one = core.part(file, 50)
    assert (one.offset, one.size) == (70, 30)
    assert file.done


def test_an_offset_that_comes_during_a_part_counts_for_the_next_one() -> None:
    core = connected()
    file = begun(core, offer(0, 1))
    core.part(file, 10)
    feed(core, resume(1, 1_000_000))
    assert file.offset == 10
    file.skip_known()
    assert file.offset == 100
    assert file.done


@pytest.mark.parametrize("settle", [ack, refusal])
def test_a_file_that_is_acknowledged_or_refused_stops(settle: object) -> None:
    core, offered = connected(50), offer(0, 1)
    file = begun(core, offered)
    core.part(file, 50)
    assert core.next_file() is None
    (event,) = feed(core, settle(offered.entry))  # type: ignore[operator]
    assert isinstance(event, ev.AckReceived | ev.RefusalReceived)
    assert core.next_file() is file, "to be ended"
    assert file.state is FileState.UNWANTED
    assert file.done


def test_an_acknowledgement_of_another_member_does_not_stop_a_file() -> None:
    core, offered = connected(50), offer(0, 1)
    file = begun(core, offered)
    feed(core, ack(offered.entry, "c"))
    assert file.state is FileState.SENDING


def test_a_whole_file_goes_at_once_only_before_everything_else() -> None:
    core = PushSender("b")
    assert not core.may_send_whole(10), "not welcome yet"
    feed(core, welcome(100))
    assert core.may_send_whole(100)
    assert not core.may_send_whole(101)
    small = offer(0, 1, 30)
    assert core.whole(small) + content(30, 1) == begin(1, small.entry) + part(1, 0, content(30, 1))
    assert not core.may_send_whole(71)
    assert core.whole(offer(0, 2, 0)) == begin(2, offer(0, 2, 0).entry)
    core.offer(offer(0, 3))
    assert not core.may_send_whole(1)
    core.withdraw((offer(0, 3).entry.store, offer(0, 3).entry.name))
    assert core.may_send_whole(1)
    begun(core, offer(0, 4))
    assert not core.may_send_whole(1)


def test_an_idle_sender_returns_its_credit() -> None:
    core = connected(100)
    assert core.return_credit(30) == returned(70)
    assert core.return_credit(30) == b""


def test_files_under_way_are_known_at_the_end() -> None:
    core = connected()
    file = begun(core, offer(0, 1))
    assert core.close() == [file]
    assert core.state is State.CLOSED
    assert core.close() == []


REPLIES = [welcome(), credit(5), ack(offer(0, 1).entry), refusal(offer(0, 2).entry), resume(9, 1), credit(7)]


@given(cuts=st.lists(st.integers(0, 1000), max_size=20))
@settings(deadline=None)
def test_events_do_not_depend_on_how_the_replies_arrive(cuts: list[int]) -> None:
    data = b"".join(REPLIES)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    core, got = PushSender("b"), []
    for start, end in itertools.pairwise(edges):
        got += feed(core, data[start:end])
    assert got == feed(PushSender("b"), data)
    assert len(got) == len(REPLIES)


@given(garbage=st.binary(max_size=300))
@settings(deadline=None)
def test_garbage_is_waited_for_or_refused_with_a_clear_error(garbage: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        feed(connected(), garbage)


@pytest.mark.parametrize(
    ("replies", "complaint"),
    [
        (credit(1), "unexpected reply credit"),
        (welcome() + welcome(), "unexpected reply welcome"),
        (packed(peer_pb2.PushReply()), "unexpected reply None"),
        (welcome() + reply(broken=peer_pb2.PushBroken(message="that was wrong")), "b: that was wrong"),
        (welcome() + packed(peer_pb2.PushReply(), 3), "3 bytes of data behind a reply"),
        (b"\xff" * 8, f"at most {MESSAGE_BYTES_MAX} are allowed"),
        (b"\x04\0\0\0\0\0\0\0\xff\xff\xff\xff", "not a reply of a push stream"),
    ],
)
def test_a_receiver_that_breaks_the_protocol_ends_the_stream(replies: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        feed(PushSender("b"), replies)


def test_both_cores_understand_each_other() -> None:
    sender, receiver = connected(10_000), opened(10_000)
    player, files = Player(receiver), {}
    for number in range(1, 4):
        files[number] = content(400 * number, number)
        core_file = begun(sender, offer(number, number, 400 * number))
        assert core_file.transfer == number
    while (file := sender.next_file()) is not None:
        one = sender.part(file, 150)
        player.feed(one.head + files[file.transfer][one.offset : one.offset + one.size])
        if file.done:
            sender.end(file)
    for number, data in files.items():
        assert b"".join(event[2] for event in player.said if event[:2] == ("data", number)) == data
        assert ("complete", number) in player.said
