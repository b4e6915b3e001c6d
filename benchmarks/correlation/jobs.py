"""The two jobs of Madsen & Zhou's evaluation (sections 7.3.1 and 7.3.2) as loads over time."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

CAPACITY = 1.0  # of a worker; loads are parts of it
OVERLOAD = 0.8  # a worker with more than this gives virtual nodes away


@dataclass(frozen=True, slots=True)
class Job:
    """`nodes`: the load of each virtual node in each window. `owners`: where they begin. `others`: other loads.

    Copies are placed by what the first `observed` windows show.
    """

    nodes: Sequence[Sequence[float]]
    owners: Sequence[int]
    others: Sequence[Sequence[float]]
    observed: int

    @property
    def workers(self) -> int:
        return len(self.others)

    @property
    def windows(self) -> int:
        return len(self.others[0])


def synthetic() -> Job:
    """Two operators of 10 key groups, of which one gets what the other loses; workers 0 and 2 are full otherwise.

    In 100 s all data go from operator 1 on worker 1 to operator 2 on worker 2. The first 20 s are observed.
    """
    falling = [(1 - second / 100) * 0.6 / 10 for second in range(100)]
    rising = [second / 100 * 0.6 / 10 for second in range(100)]
    full, idle = [OVERLOAD] * 100, [0.0] * 100
    return Job([falling] * 10 + [rising] * 10, [1] * 10 + [2] * 10, [full, idle, full], 20)


OPERATORS = (0.22, 0.20, 0.18)  # parts of a worker's capacity for operators 1 to 3 in a busy hour
SAMPLING = 0.25  # operator 4 on its own workers, whatever the rate
PARSING = 0.55  # the input workers in a busy hour
MAIN, SAMPLERS, INPUTS = 16, 4, 4
WINDOWS, OBSERVED = 96, 30  # of 30 s: 48 minutes, of which the first 15 are observed
RISE = 0.25  # by so much the rate grows after the observation; the whole cluster still has capacity for that


def airline(key_groups: int, rate: Sequence[float], chance: random.Random) -> Job:
    """Operators 1 to 3 follow the flights, operator 4 does not. Each has so many key groups.

    `rate`: flights per window over those of a busy hour. The part of a key group in the work of its operator wanders.
    """
    grown = [value * (1 + RISE * max(0, t - OBSERVED) / (WINDOWS - OBSERVED)) for t, value in enumerate(rate)]
    nodes: list[list[float]] = []
    owners: list[int] = []
    for operator, part in enumerate(OPERATORS):
        for group in range(key_groups):
            wander = _wandering(chance)
            nodes.append([part * MAIN / key_groups * r * w for r, w in zip(grown, wander, strict=True)])
            owners.append((group + operator) % MAIN)
    for group in range(key_groups):
        nodes.append([SAMPLING * SAMPLERS / key_groups * w for w in _wandering(chance)])
        owners.append(MAIN + group % SAMPLERS)
    others = [[0.0] * WINDOWS for _ in range(MAIN + SAMPLERS)]
    others += [[PARSING * value for value in grown] for _ in range(INPUTS)]
    return Job(nodes, owners, others, OBSERVED)


def _wandering(chance: random.Random) -> list[float]:
    """A factor near 1 that drifts: an autoregressive walk."""
    level, found = 0.0, []
    for _ in range(WINDOWS):
        level = 0.9 * level + chance.gauss(0, 0.06)
        found.append(math.exp(level))
    return found
