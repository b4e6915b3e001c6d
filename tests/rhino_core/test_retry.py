"""Pauses between attempts."""

from __future__ import annotations

import pytest

from rhino_core import retry
from rhino_core.errors import InvalidRequestError, PreconditionError, UnavailableError
from rhino_core.retry import Backoff


def test_pauses_double_up_to_the_longest_and_begin_again() -> None:
    pauses = Backoff(0.1, 0.5).pauses()
    assert [pauses.take() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    pauses.reset()
    assert pauses.take() == 0.1


def test_a_limit_of_the_moment_replaces_the_longest() -> None:
    pauses = Backoff(0.4, 1.0).pauses()
    assert [pauses.take(limit) for limit in (30, 30, 30, 30, 1, 30)] == [0.4, 0.8, 1.6, 3.2, 1, 2]


class Failing:
    """Raises this error so many times, then returns the number of attempts."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.made = error, times, 0

    def __call__(self) -> int:
        self.made += 1
        if self.made <= self.times:
            raise self.error
        return self.made

    async def later(self) -> int:
        return self()


def test_calls_are_made_again_while_the_other_end_is_unavailable() -> None:
    assert retry.calls_sync(5)(Failing(UnavailableError("down"), 2)) == 3
    for error, for_s in ((UnavailableError("down"), 0), (InvalidRequestError("never right"), 5)):
        failing = Failing(error, 1)
        with pytest.raises(type(error)):
            retry.calls_sync(for_s)(failing)
        assert failing.made == 1


async def test_a_group_is_asked_for_until_there_are_workers_or_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "GROUP_PAUSE_S", 0.01)
    assert await retry.until_resolved()(Failing(PreconditionError("too few workers"), 3).later) == 4
    monkeypatch.setattr(retry, "GROUP_FOR_S", 0.05)
    with pytest.raises(PreconditionError, match="too few"):
        await retry.until_resolved()(Failing(PreconditionError("too few workers"), 1000).later)
