"""The budget of adaptation: bytes and moves of an hour."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

HOUR_S = 3600.0


class Spent(NamedTuple):
    """A plan begun `age_s` seconds before the record was written."""

    age_s: float
    bytes: int
    moves: int


class Left(NamedTuple):
    """The budget of this hour."""

    bytes: int
    moves: int

    def covers(self, size: int, moves: int) -> bool:
        """Whether so many bytes and moves are left."""
        return size <= self.bytes and moves <= self.moves


class Budget:
    """Bytes and moves of the last hour. Times are monotonic, in seconds."""

    def __init__(self, hourly_bytes: int, hourly_moves: int, spent: Iterable[Spent] = (), now: float = 0.0) -> None:
        self._bytes, self._moves = hourly_bytes, hourly_moves
        self._spent = deque((now - one.age_s, one.bytes, one.moves) for one in spent)

    def left(self, now: float) -> Left:
        while self._spent and self._spent[0][0] <= now - HOUR_S:
            self._spent.popleft()
        spent_bytes, spent_moves = sum(s[1] for s in self._spent), sum(s[2] for s in self._spent)
        return Left(max(self._bytes - spent_bytes, 0), max(self._moves - spent_moves, 0))

    def spend(self, size: int, moves: int, now: float) -> None:
        self._spent.append((now, size, moves))

    def record(self, now: float) -> tuple[Spent, ...]:
        self.left(now)
        return tuple(Spent(now - at, size, moves) for at, size, moves in self._spent)
