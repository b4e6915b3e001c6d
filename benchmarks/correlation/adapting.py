"""A cluster that moves virtual nodes away from overloaded workers, and what its copies are worth for that."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.correlation.jobs import OVERLOAD, Job
from rhino_core.planning.correlation import Copies, Costs, Histories, allocate, improve

SIGMA = 0.05
AGAIN = 10  # windows between two looks at the copies
HISTORY = 30  # windows that such a look takes into account
BUDGET = 0.1  # the part of all copies that may move at a look


@dataclass(slots=True)
class Outcome:
    """`offered`: virtual nodes on overloaded workers, over all windows. `usable`: those of them with a copy on a worker
    that could take it without being overloaded. `first_offered`, `first_usable`: at the first overload, before any
    move. `copied`: copies that were placed anew.
    """

    moves: int = 0
    assisted: int = 0
    offered: int = 0
    usable: int = 0
    first_offered: int = 0
    first_usable: int = 0
    copied: int = 0

    def add(self, other: Outcome) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Cluster:
    """One run. `partners`: for each worker those that may hold copies of its virtual nodes.

    `by_copy`: any virtual node with a usable copy goes before those without. Otherwise the load alone says which one
    goes, and it uses its copy if it can.
    """

    job: Job
    partners: Sequence[Sequence[int]]
    copies: list[Copies]
    by_copy: bool = False
    owners: list[int] = field(init=False)
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self.owners = list(self.job.owners)

    def run(self, *, again: bool) -> Outcome:
        """From the end of the observation on. `again`: the copies follow the loads by `improve`."""
        for window in range(self.job.observed, self.job.windows):
            self._step(window)
            if again and (window - self.job.observed + 1) % AGAIN == 0:
                self._look(window)
        return self.outcome

    def _step(self, window: int) -> None:
        loads = [others[window] for others in self.job.others]
        for node, owner in enumerate(self.owners):
            loads[owner] += self.job.nodes[node][window]
        busy = sorted((w for w, load in enumerate(loads) if load > OVERLOAD), key=lambda w: -loads[w])
        for worker in busy:
            mine = [node for node, owner in enumerate(self.owners) if owner == worker]
            self.outcome.offered += len(mine)
            self.outcome.usable += sum(self._assisting(node, window, loads) is not None for node in mine)
        if not self.outcome.first_offered:
            self.outcome.first_offered, self.outcome.first_usable = self.outcome.offered, self.outcome.usable
        for worker in busy:
            while loads[worker] > OVERLOAD and self._relieve(worker, window, loads):
                pass

    def _relieve(self, worker: int, window: int, loads: list[float]) -> bool:
        """Moves one virtual node away, to a copy if that is possible. Returns whether one moved."""
        mine = [node for node, owner in enumerate(self.owners) if owner == worker and self.job.nodes[node][window] > 0]
        sizes, excess = {node: self.job.nodes[node][window] for node in mine}, loads[worker] - OVERLOAD
        copies = {node: self._assisting(node, window, loads) for node in mine}
        # the smallest one that suffices, otherwise the largest one
        mine.sort(key=lambda n: (sizes[n] < excess, sizes[n] if sizes[n] >= excess else -sizes[n]))
        if self.by_copy:
            mine.sort(key=lambda n: copies[n] is None)
        lowest = min(range(self.job.workers), key=loads.__getitem__)
        for node in mine:
            assisting = copies[node]
            target = lowest if assisting is None else assisting
            if loads[target] + sizes[node] <= OVERLOAD:
                self._move(node, target, assisted=assisting is not None)
                loads[worker] -= sizes[node]
                loads[target] += sizes[node]
                return True
        return False

    def _move(self, node: int, target: int, *, assisted: bool) -> None:
        """The former worker keeps the copy if the target had it."""
        worker, self.owners[node] = self.owners[node], target
        self.outcome.moves += 1
        self.outcome.assisted += assisted
        self.copies[node] = tuple(worker if holder == target else holder for holder in self.copies[node])

    def _assisting(self, node: int, window: int, loads: Sequence[float]) -> int | None:
        """The least loaded worker with a copy that would not be overloaded."""
        load = self.job.nodes[node][window]
        fitting = [w for w in self.copies[node] if loads[w] + load <= OVERLOAD]
        return min(fitting, key=lambda w: loads[w], default=None)

    def _look(self, window: int) -> None:
        costs = _costs(self.job, self.owners, self.partners, window - HISTORY + 1, window + 1)
        sizes = [1.0] * len(self.owners)
        for move in improve(costs, self.copies, sizes, SIGMA, BUDGET * len(self.owners)):
            held = self.copies[move.node]
            self.copies[move.node] = tuple(move.target if w == move.origin else w for w in held)
            self.outcome.copied += 1


def _costs(job: Job, owners: Sequence[int], partners: Sequence[Sequence[int]], start: int, end: int) -> Costs:
    start = max(start, 0)
    nodes = [history[start:end] for history in job.nodes]
    others = [history[start:end] for history in job.others]
    error = (end - start) ** -0.5  # standard error of a correlation of 0: what is nearer than that is the same
    return Costs(Histories(nodes, owners, others, partners, tolerance=error))


def baseline(job: Job, partners: Sequence[Sequence[int]], chance: random.Random) -> list[Copies]:
    """On any other worker."""
    return [(chance.choice([w for w in partners[owner] if w != owner]),) for owner in job.owners]


def even(job: Job, partners: Sequence[Sequence[int]], chance: random.Random) -> list[Copies]:
    """On any other worker that has no more than its share of the copies, if there is one."""
    share, held = -(-len(job.owners) // job.workers), [0] * job.workers
    placed: list[Copies] = [()] * len(job.owners)
    for node in chance.sample(range(len(job.owners)), len(job.owners)):
        others = [w for w in partners[job.owners[node]] if w != job.owners[node]]
        worker = chance.choice([w for w in others if held[w] < share] or others)
        held[worker] += 1
        placed[node] = (worker,)
    return placed


def correlated(job: Job, partners: Sequence[Sequence[int]], chance: random.Random) -> list[Copies]:
    """By Algorithm 3, from what was observed."""
    return allocate(_costs(job, job.owners, partners, 0, job.observed))


Way = Callable[[Job, Sequence[Sequence[int]], random.Random], list[Copies]]
