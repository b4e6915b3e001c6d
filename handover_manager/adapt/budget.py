"""What adaptation may do: a budget of bytes and moves an hour, and virtual nodes that stay where they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rhino_core.ids import VirtualNode

HOUR_S = 3600.0
FAILURES_MAX = 6  # a cool-down is doubled at most so many times


class Spent(NamedTuple):
    """A plan that was begun `age_s` seconds ago, when the record was written."""

    age_s: float
    bytes: int
    moves: int


class Frozen(NamedTuple):
    """A virtual node in its cool-down. `failures`: moves of it that did not help, in a row."""

    job: str
    task_group: int
    partition: int
    left_s: float
    failures: int


class Budget:
    """Bytes and moves of the last hour. Times are monotonic, in seconds."""

    def __init__(self, hourly_bytes: int, hourly_moves: int, spent: Iterable[Spent] = (), now: float = 0.0) -> None:
        self._bytes, self._moves = hourly_bytes, hourly_moves
        self._spent = deque((now - one.age_s, one.bytes, one.moves) for one in spent)

    def allows(self, size: int, moves: int, now: float) -> bool:
        bytes_left, moves_left = self.left(now)
        return size <= bytes_left and moves <= moves_left

    def left(self, now: float) -> tuple[int, int]:
        """Bytes and moves that are left in this hour."""
        while self._spent and self._spent[0][0] <= now - HOUR_S:
            self._spent.popleft()
        spent_bytes, spent_moves = sum(s[1] for s in self._spent), sum(s[2] for s in self._spent)
        return max(self._bytes - spent_bytes, 0), max(self._moves - spent_moves, 0)

    def spend(self, size: int, moves: int, now: float) -> None:
        self._spent.append((now, size, moves))

    def record(self, now: float) -> tuple[Spent, ...]:
        self.left(now)
        return tuple(Spent(now - at, size, moves) for at, size, moves in self._spent)


@dataclass(slots=True)
class _CoolDown:
    until: float
    failures: int


class CoolDowns:
    """Virtual nodes that adaptation leaves alone, because it has moved them a short time ago.

    The cool-down doubles with each move that did not help. It is forgotten after as long again.
    """

    def __init__(self, usual_s: float, frozen: Iterable[Frozen] = (), now: float = 0.0) -> None:
        self._usual_s = usual_s
        self._of = {
            VirtualNode(one.job, one.task_group, one.partition): _CoolDown(now + one.left_s, one.failures)
            for one in frozen
        }

    def active(self, node: VirtualNode, now: float) -> bool:
        found = self._of.get(node)
        return found is not None and now < found.until

    def begin(self, nodes: Iterable[VirtualNode], now: float, *, failed: bool = False) -> None:
        """The nodes have moved. `failed`: they have moved back, because their move did not help."""
        for node in nodes:
            former = self._of.get(node)
            failures = min((former.failures if former else 0) + failed, FAILURES_MAX)
            self._of[node] = _CoolDown(now + self._usual_s * 2**failures, failures)

    def forget(self, job: str) -> None:
        self._of = {node: one for node, one in self._of.items() if node.job != job}

    def record(self, now: float) -> tuple[Frozen, ...]:
        """Drops what has been over for as long as it lasted."""
        self._of = {n: one for n, one in self._of.items() if now < one.until + self._usual_s * 2**one.failures}
        return tuple(
            Frozen(n.job, n.task_group, n.partition, one.until - now, one.failures)
            for n, one in sorted(self._of.items())
        )
