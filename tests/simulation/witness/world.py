"""Time, randomness and the network of one seed."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn


@dataclass
class Faults:
    """Probabilities per message, and the longest delay of a late one."""

    lose: float = 0.0
    repeat: float = 0.0
    late: float = 0.0
    late_s: float = 0.0


class Violation(AssertionError):
    """An invariant did not hold."""


class World:
    """`trace`: what happened, if `traced`. `receivers`: by the name of a process."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.faults = Faults()
        self.trace: list[str] = []
        self.traced = traced
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.receivers: dict[str, Callable[[Any, str], None]] = {}
        self.cuts: set[tuple[str, str]] = set()  # hosts: nothing goes from the first one to the second one

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def say(self, text: str) -> None:
        if self.traced:
            self.trace.append(f"{self.now:8.3f} {text}")

    def fail(self, text: str) -> NoReturn:
        self.say(f"FAILED: {text}")
        raise Violation(text)

    def later(self, delay_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_s, next(self._numbers), do))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, do = heapq.heappop(self._queue)
            do()
        self.now = until

    def send(self, sender: str, receiver: str, message: Any) -> None:
        """Delivers the message after a while: never, once or twice, and before or after others."""
        if self.traced:
            self.say(f"{sender} > {receiver}: {message}")
        for _ in range(1 + self.chance(self.faults.repeat)):
            if not self.chance(self.faults.lose):
                late = self.chance(self.faults.late)
                delay_s = self.random.uniform(0.0, self.faults.late_s) if late else self.random.uniform(0.001, 0.02)
                self.later(delay_s, lambda: self._deliver(sender, receiver, message))

    def _deliver(self, sender: str, receiver: str, message: Any) -> None:
        if (host_of(sender), host_of(receiver)) not in self.cuts and receiver in self.receivers:
            self.receivers[receiver](message, sender)


def host_of(process: str) -> str:
    """A manager's process has the name of its host, and the number of its life: `m1.3`."""
    return process.partition(".")[0]
