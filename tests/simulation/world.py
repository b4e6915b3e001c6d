"""Time, randomness and the network of a simulated cluster: one event queue, one seed, no real clock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

Action = Callable[[], None]
ACTIONS_MAX = 200_000  # of one run; a common one has a tenth


class RestlessError(AssertionError):
    """Actions lead to actions without end."""


@dataclass(frozen=True)
class Faults:
    """Probabilities per occasion; `none()` is what a healed network does."""

    break_link: float = 0.01
    stall_message: float = 0.005  # and with it all that comes after on its stream
    lose_call: float = 0.03  # its request or its reply
    repeat_reply: float = 0.02
    drop_beat: float = 0.05
    fail_write: float = 0.02
    repeat_message: float = 0.1  # of the manager
    crash_between_effects: float = 0.0005
    abandon_commit: float = 0.03
    delay_s: tuple[float, float] = (0.001, 0.05)

    @staticmethod
    def none() -> Faults:
        return Faults(
            break_link=0.0,
            stall_message=0.0,
            lose_call=0.0,
            repeat_reply=0.0,
            drop_beat=0.0,
            fail_write=0.0,
            repeat_message=0.0,
            crash_between_effects=0.0,
            abandon_commit=0.0,
        )


@dataclass
class World:
    """Runs actions in the order of their times. `trace`: what happened, for a failing seed."""

    seed: int
    faults: Faults = field(default_factory=Faults)
    now: float = 0.0
    verbose: bool = False  # every event and effect of every machine, too
    trace: list[str] = field(default_factory=list)
    actions: int = 0
    actions_max: int = ACTIONS_MAX

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._draw = self.random.random
        self._queue: list[tuple[float, int, Action]] = []
        self._order = itertools.count()
        self.numbers = itertools.count(1)  # for requests, transfers, pins

    def at(self, time: float, action: Action) -> None:
        heapq.heappush(self._queue, (time if time > self.now else self.now, next(self._order), action))

    def after(self, delay_s: float, action: Action) -> None:
        self.at(self.now + delay_s, action)

    def delay(self) -> float:
        low_s, high_s = self.faults.delay_s
        return low_s + (high_s - low_s) * self._draw()

    def chance(self, probability: float) -> bool:
        return self._draw() < probability

    def run_until(self, time: float) -> None:
        """Runs every action due up to `time`. Raises RestlessError when there is no end of them."""
        queue = self._queue
        while queue and queue[0][0] <= time:
            self.actions += 1
            if self.actions > self.actions_max:
                raise RestlessError(f"{self.actions} actions by {self.now:.4f} s: something never comes to rest")
            self.now, _, action = heapq.heappop(queue)
            action()
        self.now = time

    def say(self, text: str) -> None:
        self.trace.append(f"{self.now:9.4f} {text}")


class Link:
    """One push stream of one worker to another, with replies back: in each direction FIFO until it breaks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._free_at = {True: 0.0, False: 0.0}
        self._held_back: dict[bool, list[Action]] = {}
        self.open = True

    def send(self, deliver: Action, *, forward: bool) -> None:
        """Delivers later, after everything sent before in this direction; never once the link has broken."""
        delay_s = self._world.delay()
        if self._world.chance(self._world.faults.stall_message):
            delay_s = self._world.random.uniform(0.1, 0.8)
        time = max(self._free_at[forward], self._world.now + delay_s)
        self._free_at[forward] = time

        def arrive() -> None:
            if not self.open:
                return
            if forward in self._held_back:
                self._held_back[forward].append(deliver)
            else:
                deliver()

        self._world.at(time, arrive)

    def hold_back(self, *, forward: bool) -> None:
        self._held_back.setdefault(forward, [])

    def let_go(self, *, forward: bool) -> None:
        for deliver in self._held_back.pop(forward, []):
            if self.open:
                deliver()

    @property
    def stalled(self) -> bool:
        return bool(self._held_back)
