"""Data files give way to commits, and are never held up for good."""

from __future__ import annotations

from worker_runtime.precedence import QUIET_S, TRICKLE_S, Precedence


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_commits_nothing_waits() -> None:
    clock = Clock()
    precedence = Precedence(clock)
    assert precedence.wait_s(clock.now) <= 0


def test_a_chunk_waits_until_commits_are_quiet_or_it_is_due() -> None:
    clock = Clock()
    precedence = Precedence(clock)
    precedence.commit()
    assert abs(precedence.wait_s(sent_at=clock.now) - QUIET_S) < 1e-9
    assert precedence.wait_s(sent_at=clock.now - TRICKLE_S) <= 0
    clock.now += QUIET_S
    assert precedence.wait_s(sent_at=clock.now) <= 0


async def test_chunks_trickle_while_commits_never_end() -> None:
    clock = Clock()
    precedence = Precedence(clock)
    sent_at, waited = clock.now, 0.0
    precedence.commit()
    while (wait_s := precedence.wait_s(sent_at)) > 0:
        waited += wait_s
        clock.now += wait_s
        precedence.commit()
    assert abs(waited - TRICKLE_S) < 1e-9
    assert await precedence.give_way(sent_at) == clock.now
