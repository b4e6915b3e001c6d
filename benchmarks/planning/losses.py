"""The loss of many workers at once: how often and how much state goes, with copies at random and in copysets.

Copies in sets are chosen by the code of the replication manager. A worker that may be in a new set chooses among a
sample of the workers, so that a million groups are placed in a minute.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from replication_manager.protocol.placement import Bin, Wish, choose
from rhino_core.ids import Worker
from rhino_core.planning.copysets import Copysets, Sets, sets_of_a_worker

LOST = 0.01  # the part of all workers that is lost at once
COPIES = 2  # secondary copies
SAMPLE = 64  # candidates of a worker that may be in a new set
WIDTHS = (4, 2)


@dataclass(frozen=True, slots=True)
class Losses:
    """One way to place copies. A group is lost if its owner and all copies are.

    `fatal_sets`: sets of workers that hold all of some group. `losing_rounds`: rounds in which any group was lost.
    `expected`: the probability of that, by counting `fatal_sets`. `lost_groups`: over all rounds.
    """

    placement: str
    fatal_sets: int
    rounds: int
    losing_rounds: int
    expected: float
    lost_groups: int


def simulate(workers: int, groups: int, rounds: int, seed: int) -> list[Losses]:
    """Copies at random, and in sets for some scatter widths; each loses the same workers."""
    chance = random.Random(seed)
    everybody = range(workers)

    def at_random(owner: int) -> tuple[int, ...]:
        while True:
            found = tuple(chance.sample(everybody, COPIES))
            if owner not in found:
                return found

    ways = {"random": at_random} | {f"scatter width {width}": _in_sets(workers, width, chance) for width in WIDTHS}
    return [_lose(name, way, workers, groups, random.Random(f"{seed}/{rounds}"), rounds) for name, way in ways.items()]


def _in_sets(workers: int, width: int, chance: random.Random) -> Callable[[int], tuple[int, ...]]:
    known = [
        Worker(f"{number}", "i", f"host-{number}", f"host-{number}:1", f"zone-{number % 3}")
        for number in range(workers)
    ]
    copysets, loads, most = Copysets(), [0] * workers, sets_of_a_worker(width, COPIES + 1)

    def way(owner: int) -> tuple[int, ...]:
        name = known[owner].worker_id
        grows = sum(1 for _ in copysets.of(name)) < most
        near = chance.sample(range(workers), min(SAMPLE, workers)) if grows else []
        candidates = {*near, *map(int, copysets.partners(name))} - {owner}
        bins = [Bin(known[number], loads[number]) for number in candidates]
        sets = Sets(copysets, COPIES + 1, most, lambda worker: True)
        choices = choose(bins, COPIES, [known[owner]], Wish(members=COPIES + 1), sets)
        chosen = [choice.worker for choice in choices]
        copysets.add([name, *(worker.worker_id for worker in chosen)])
        found = tuple(int(worker.worker_id) for worker in chosen)
        for number in found:
            loads[number] += 1
        return found

    return way


def _lose(
    name: str, way: Callable[[int], tuple[int, ...]], workers: int, groups: int, chance: random.Random, rounds: int
) -> Losses:
    placed: list[list[tuple[int, ...]]] = [[] for _ in range(workers)]
    for group in range(groups):
        placed[group % workers].append(way(group % workers))
    fatal = {frozenset((owner, *copies)) for owner, held in enumerate(placed) for copies in held}
    dead_count = max(round(workers * LOST), COPIES + 1)
    losing = lost = 0
    for _ in range(rounds):
        dead = set(chance.sample(range(workers), dead_count))
        found = sum(dead.issuperset(copies) for owner in dead for copies in placed[owner])
        lost += found
        losing += found > 0
    each = math.comb(dead_count, COPIES + 1) / math.comb(workers, COPIES + 1)
    return Losses(name, len(fatal), rounds, losing, 1 - (1 - each) ** len(fatal), lost)
