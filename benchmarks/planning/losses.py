"""The loss of many workers at once: how often and how much state goes, with copies at random and in copysets."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from rhino_core.planning.model import Site
from rhino_core.planning.scatter import scatter

LOST = 0.01  # the part of all workers that is lost at once
COPIES = 2  # secondary copies


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
    """Copies at random, and in sets of one and of two permutations; each loses the same workers."""
    chance = random.Random(seed)
    names = [f"worker-{number}" for number in range(workers)]
    position = {name: number for number, name in enumerate(names)}
    sites = [Site(name, zone=f"zone-{number % 3}") for name, number in position.items()]
    everybody = range(workers)

    def at_random(owner: int) -> tuple[int, ...]:
        while True:
            found = tuple(chance.sample(everybody, COPIES))
            if owner not in found:
                return found

    def in_sets(permutations: int) -> Callable[[int], tuple[int, ...]]:
        made, loads = scatter(sites, COPIES + 1, permutations), dict[str, float]()
        return lambda owner: tuple(position[worker] for worker in made.choose(names[owner], loads, 1.0))

    ways = {"random": at_random, "sets, 2 permutations": in_sets(2), "sets, 1 permutation": in_sets(1)}
    return [_lose(name, way, workers, groups, random.Random(f"{seed}/{rounds}"), rounds) for name, way in ways.items()]


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
