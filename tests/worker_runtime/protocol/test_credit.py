"""Credit: what is in flight never exceeds what was granted, and the grants never exceed the limit."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rhino_core.errors import LocalProtocolError, RemoteProtocolError
from worker_runtime.protocol.credit import GrantPool, SendWindow


def returnable_bytes(pool: GrantPool) -> int:
    """Granted bytes, free again and not yet returned to the senders."""
    return sum(stream.returnable_bytes for stream in pool._streams.values())


def test_window_spends_what_it_was_given() -> None:
    window = SendWindow(10)
    assert (window.take(6), window.take(6), window.take(1)) == (6, 4, 0)
    window.give(3)
    assert window.available_bytes == 3
    with pytest.raises(RemoteProtocolError):
        window.give(-1)


def test_a_sender_that_overruns_its_credit_is_found() -> None:
    pool = GrantPool(100, 20)
    stream, credit = pool.open()
    assert credit == 20
    pool.received(stream, 20)
    with pytest.raises(RemoteProtocolError):
        pool.received(stream, 1)
    with pytest.raises(LocalProtocolError):
        pool.settled(stream, 21)


def test_many_streams_share_the_limit_and_a_closed_one_tops_up_starved_ones() -> None:
    pool = GrantPool(8, 8)
    credits = [pool.open() for _ in range(6)]
    assert [credit for _, credit in credits] == [4, 2, 1, 1, 0, 0]
    assert pool.starved() == [5, 6]
    pool.close(credits[0][0])
    assert pool.top_up(5) == 2
    assert pool.top_up(6) == 1
    pool.check_invariants()


def test_credit_goes_back_in_halves_of_a_window() -> None:
    pool = GrantPool(100, 20)
    stream, _ = pool.open()
    pool.received(stream, 20)
    assert [pool.settled(stream, 2) for _ in range(8)] == [0, 0, 0, 0, 10, 0, 0, 0]
    assert returnable_bytes(pool) == 6
    with pytest.raises(RemoteProtocolError):
        pool.received(stream, 11)  # the returnable credit has not been sent back


def test_a_late_stream_gets_its_share_from_those_that_have_more() -> None:
    pool = GrantPool(160, 48)
    early = [pool.open() for _ in range(5)]
    late, credit = pool.open()
    assert credit == 4, "as good as nothing"
    for stream, window in early:
        pool.received(stream, window)
    for stream, window in early:
        pool.settled(stream, window)
        for starved in pool.starved():
            credit += pool.top_up(starved) if starved == late else 0 * pool.top_up(starved)
    assert credit >= 160 // 6 // 2
    assert not pool.starved()
    pool.check_invariants()


def test_idle_streams_leave_room_for_late_ones() -> None:
    """32 senders with a limit of 16 windows: the last one gets as much as it can use once the others are idle."""
    pool = GrantPool(128, 8)
    windows = {}
    for _ in range(31):
        stream, credit = pool.open()
        windows[stream] = SendWindow(credit)
    last, credit = pool.open()
    assert credit == 0
    for stream, window in windows.items():
        if back := window.give_back(keep_bytes=1):
            pool.returned(stream, back)
        for starved in pool.starved():
            credit += pool.top_up(starved) if starved == last else 0 * pool.top_up(starved)
    assert credit == 8
    pool.check_invariants()


def test_an_idle_stream_that_sends_again_gets_its_window_back() -> None:
    pool = GrantPool(100, 20)
    stream, credit = pool.open()
    window = SendWindow(credit)
    assert window.give_back(keep_bytes=2) == 18
    pool.returned(stream, 18)
    assert (pool.granted_bytes, pool.starved()) == (2, [])
    pool.received(stream, window.take(2))
    window.give(pool.settled(stream, 2))
    assert window.available_bytes == pool.granted_bytes == 20


def test_more_credit_than_it_has_cannot_be_returned() -> None:
    pool = GrantPool(100, 20)
    stream, _ = pool.open()
    pool.received(stream, 5)
    with pytest.raises(RemoteProtocolError, match="16 bytes of credit returned out of 15"):
        pool.returned(stream, 16)


def test_silent_streams_lose_their_windows_to_those_that_starve() -> None:
    pool = GrantPool(64, 8)
    silent = [pool.open()[0] for _ in range(20)]
    late, credit = pool.open()
    assert credit == 0
    assert pool.take_back() == [], "nobody has been silent, or starved, for long"
    ended = pool.take_back()
    assert ended
    assert late not in ended
    for stream in ended:
        pool.close(stream)
    assert pool.top_up(late) >= 1
    assert len(ended) < len(silent), "as few as it takes"
    pool.check_invariants()


def test_streams_that_work_or_are_not_in_anybodys_way_stay() -> None:
    pool = GrantPool(16, 8)
    working, credit = pool.open()
    slow, slow_credit = pool.open()
    late, _ = pool.open()
    pool.received(slow, slow_credit)  # its disk is slow: that is no silence
    pool.received(working, credit)
    for _ in range(3):
        assert pool.take_back() == []
        pool.received(working, pool.settled(working, 1))
    assert late in pool.starved()
    roomy = GrantPool(100, 8)
    roomy.open()
    assert [roomy.take_back() for _ in range(3)] == [[], [], []]


def test_idle_streams_go_last() -> None:
    pool = GrantPool(20, 8)
    idle, credit = pool.open()
    silent, window = pool.open()
    while pool.open()[1]:
        pass
    last, _ = pool.open()
    pool.returned(idle, 1)
    pool.top_up(last - 1)
    assert pool.starved() == [last]
    assert credit - 1 > window, "the idle one has more"
    assert [pool.take_back() for _ in range(2)] == [[], [silent]]


class Flow(RuleBasedStateMachine):
    """Senders and one receiver; frames and credit are delivered in any order between the streams."""

    LIMIT, WINDOW = 64, 16

    def __init__(self) -> None:
        super().__init__()
        self.pool = GrantPool(self.LIMIT, self.WINDOW)
        self.windows: dict[int, SendWindow] = {}
        self.wire: dict[int, list[int]] = {}
        self.buffered: dict[int, int] = {}

    @rule()
    def open(self) -> None:
        stream, credit = self.pool.open()
        self.windows[stream] = SendWindow(credit)
        self.wire[stream] = []
        self.buffered[stream] = 0

    @precondition(lambda self: self.windows)
    @rule(data=st.data(), size=st.integers(1, 20))
    def send(self, data: st.DataObject, size: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.windows)))
        if taken := self.windows[stream].take(size):
            self.wire[stream].append(taken)

    @precondition(lambda self: self.windows)
    @rule(data=st.data(), keep=st.integers(1, 8))
    def give_back(self, data: st.DataObject, keep: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.windows)))
        if not self.wire[stream] and (back := self.windows[stream].give_back(keep)):
            self.pool.returned(stream, back)
            for starved in self.pool.starved():
                self.windows[starved].give(self.pool.top_up(starved))

    @precondition(lambda self: any(self.wire.values()))
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from([s for s, frames in self.wire.items() if frames]))
        size = self.wire[stream].pop(0)
        self.pool.received(stream, size)
        self.buffered[stream] += size

    @precondition(lambda self: any(self.buffered.values()))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from([s for s, size in self.buffered.items() if size]))
        size = data.draw(st.integers(1, self.buffered[stream]))
        self.buffered[stream] -= size
        self.windows[stream].give(self.pool.settled(stream, size))

    @precondition(lambda self: self.windows)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(sorted(self.windows)))
        self.pool.close(stream)
        for book in (self.windows, self.wire, self.buffered):
            del book[stream]
        for starved in self.pool.starved():
            self.windows[starved].give(self.pool.top_up(starved))

    @invariant()
    def in_flight_is_granted(self) -> None:
        self.pool.check_invariants()
        held = sum(w.available_bytes for w in self.windows.values())
        flying = sum(sum(frames) for frames in self.wire.values()) + sum(self.buffered.values())
        assert held + flying + returnable_bytes(self.pool) == self.pool.granted_bytes

    @invariant()
    def no_stream_waits_for_credit_that_it_could_get(self) -> None:
        for stream, window in self.windows.items():
            if window.available_bytes == 0 and not self.wire[stream] and not self.buffered[stream]:
                assert stream in self.pool.starved()


Flow.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestFlow = Flow.TestCase
