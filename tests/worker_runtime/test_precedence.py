"""Data files give way to commits and loads, and are never held up for good."""

from __future__ import annotations

from rhino_core.ids import StoreId, StoreVersion, Version
from worker_runtime.precedence import QUIET_S, TRICKLE_S, Precedence
from worker_runtime.storage.keeping.retention import LOAD_S, Pins


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_commits_nothing_waits() -> None:
    clock = Clock()
    precedence = Precedence(lambda: False, clock)
    assert precedence.wait_s(clock.now) <= 0


def test_a_chunk_waits_until_commits_are_quiet_or_it_is_due() -> None:
    clock = Clock()
    precedence = Precedence(lambda: False, clock)
    precedence.commit()
    assert abs(precedence.wait_s(sent_at=clock.now) - QUIET_S) < 1e-9
    assert precedence.wait_s(sent_at=clock.now - TRICKLE_S) <= 0
    clock.now += QUIET_S
    assert precedence.wait_s(sent_at=clock.now) <= 0


async def test_chunks_trickle_while_commits_never_end() -> None:
    clock = Clock()
    precedence = Precedence(lambda: False, clock)
    sent_at, waited = clock.now, 0.0
    precedence.commit()
    while (wait_s := precedence.wait_s(sent_at)) > 0:
        waited += wait_s
        clock.now += wait_s
        precedence.commit()
    assert abs(waited - TRICKLE_S) < 1e-9
    assert await precedence.yield_to_commits(sent_at) == clock.now


def test_chunks_trickle_while_a_task_loads_state() -> None:
    clock, store = Clock(), StoreId("job", 0, 0, "default")
    pins = Pins(clock)
    precedence = Precedence(lambda: pins.loading, clock)
    first, second = (StoreVersion(store, Version(number, "x")) for number in (1, 2))
    pins.add("s", [first, second])
    pins.release("s", [first])
    assert precedence.under_way
    assert abs(precedence.wait_s(sent_at=clock.now) - TRICKLE_S) < 1e-9
    assert precedence.wait_s(sent_at=clock.now - TRICKLE_S) <= 0
    pins.release("s", [second])
    assert not precedence.under_way
    assert precedence.wait_s(sent_at=clock.now) <= 0


def test_a_pin_that_is_never_released_is_no_load_for_ever() -> None:
    clock = Clock()
    pins = Pins(clock)
    pins.add("s", [StoreVersion(StoreId("job", 0, 0, "default"), Version(1, "x"))])
    clock.now += LOAD_S
    assert not pins.loading
    pins.add("s", [StoreVersion(StoreId("job", 0, 1, "default"), Version(1, "x"))])
    assert pins.loading
    pins.end("s")
    assert not pins.loading
