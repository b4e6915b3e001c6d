"""Time, randomness and faults of one seed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True)
class Faults:
    """Probabilities per occasion."""

    fail_request: float = 0.01
    lose_answer: float = 0.01  # of a store that has done what it was asked for
    slow_request: float = 0.02
    late_list: float = 0.1  # a change is seen by lists some minutes later
    break_call: float = 0.03
    silent_driver: float = 0.1

    @staticmethod
    def none() -> Faults:
        return Faults(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass
class World:
    """`trace`: what happened, for a failing seed. `errors`: invariants that did not hold."""

    seed: int
    faults: Faults = field(default_factory=Faults)
    trace: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.loop = asyncio.get_running_loop()

    @property
    def now(self) -> float:
        return self.loop.time()

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def delay(self) -> float:
        """Seconds of a message or of half a request."""
        return self.random.uniform(0.01, 0.5)

    def say(self, text: str) -> None:
        hours, seconds = divmod(self.now, HOUR_S)
        self.trace.append(f"{hours:5.0f} h {seconds:7.2f} s {text}")

    def fail(self, text: str) -> None:
        self.say(f"FAILED: {text}")
        self.errors.append(text)

    def require(self, condition: bool, text: str) -> None:
        if not condition:
            self.fail(text)
