"""Better workers for the copies of one query after a change of its loads (Madsen & Zhou, CIKM 2015, section 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from replication_manager.protocol.placement.candidates import Choice
from replication_manager.protocol.placement.load_histories import SLACK, Fits, standard_error
from rhino_core.ids import GroupId, ReplicaGroup
from rhino_core.planning.correlation import Candidate, CopyDecision, CopyMove, Costs, Histories, improve

GROUPS_MAX = 10_000  # that decisions are kept of
WORKERS_MAX = 16  # of a group


class LoadDecisions:
    """The newest decision about each copy. Of many groups, or many workers of one, those decided last are kept.

    `by_group`: by group and worker, also of former members. It is for reading.
    """

    def __init__(self) -> None:
        self._found: dict[GroupId, dict[str, CopyDecision]] = {}

    @property
    def by_group(self) -> Mapping[GroupId, Mapping[str, CopyDecision]]:
        return self._found

    def placed(self, group: GroupId, choice: Choice, fits: Fits, now: float) -> None:
        """A worker was chosen for a copy. If loads did not decide, a former decision about it counts no more."""
        worker = choice.worker.worker_id
        self._drop(group, worker)
        if choice.rivals:
            chosen, *others = (fits.candidate(group, name) for name in (worker, *choice.rivals))
            best = min(others, key=lambda found: (found.beyond, found.correlation, found.worker))
            self._keep(group, CopyDecision(now, chosen, best, fits.error(group)))

    def moved(self, swap: Swap, now: float) -> None:
        """A copy begins to move."""
        self._drop(swap.group, swap.target.worker)
        decision = CopyDecision(now, swap.target, swap.other, swap.error, swap.origin, swap.needed)
        self._keep(swap.group, decision)

    def forget_job(self, job: str) -> None:
        self._found = {group: found for group, found in self._found.items() if group.job != job}

    def _drop(self, group: GroupId, worker: str) -> None:
        found = self._found.get(group, {})
        if found.pop(worker, None) is not None and not found:
            del self._found[group]

    def _keep(self, group: GroupId, decision: CopyDecision) -> None:
        found = self._found.pop(group, {})
        self._found[group] = {**found, decision.chosen.worker: decision}
        for old in list(self._found[group])[:-WORKERS_MAX]:
            del self._found[group][old]
        while len(self._found) > GROUPS_MAX:
            del self._found[next(iter(self._found))]


NODES_MAX = 2000  # groups that are looked at, those with the most load: more of them would take a second
CANDIDATES_MAX = 8  # workers for the copies of one owner
# Chance alone makes another placement look better. Of eight correlations that are 0, the least is measured 1.4 standard
# errors lower on average. So all copies together must gain more than that, and a copy that moves must gain much more.
ERRORS_OF_ALL = 2.0
ERRORS_OF_A_MOVE = 3.0
BYTES_PART = 0.05  # of the bytes of all copies of the query: what the moves of one round may copy


class Swap(NamedTuple):
    """The copy of the group on `origin` should be on `target`.

    `other`: the best of the other candidates by its correlation. `error`: the standard error of a correlation.
    """

    group: GroupId
    origin: Candidate
    target: Candidate
    other: Candidate | None
    error: float

    @property
    def gain(self) -> float:
        """By how much the correlation of the two loads becomes less."""
        return self.origin.correlation - self.target.correlation

    @property
    def needed(self) -> float:
        """The least gain of a move."""
        return ERRORS_OF_A_MOVE * self.error


@dataclass(frozen=True, slots=True)
class Copied:
    """A group with its load in each window, and its bytes."""

    group: ReplicaGroup
    history: Sequence[float]
    size_bytes: int


def better_places(
    copied: Collection[Copied], candidates: Callable[[str], Iterable[str]], allowed: Callable[[Swap], bool]
) -> list[Swap]:
    """Swaps for a better fit of a query's copies, by gain for their bytes.

    `candidates`: the possible workers for copies of an owner's groups, the best ones first. `allowed`: whether a swap
    spreads the group as well as before. Empty if the gain may be chance, or all copies are as good as they can be.
    """
    known = sorted(copied, key=lambda c: (-math.fsum(c.history), c.group.group))[:NODES_MAX]
    count = max((len(one.group.members) - 1 for one in known), default=0)
    known = [one for one in known if len(one.group.members) - 1 == count]
    owners = dict.fromkeys(one.group.owner.worker_id for one in known)
    usable = {owner: [w for w in candidates(owner) if w != owner][:CANDIDATES_MAX] for owner in owners}
    known = [one for one in known if len(usable[one.group.owner.worker_id]) >= count]
    if not known or not count:
        return []
    numbers = _numbers(known, usable)
    names = list(numbers)
    windows = len(known[0].history)
    error = standard_error(windows)
    costs = Costs(
        Histories(
            nodes=[one.history for one in known],
            owners=[numbers[one.group.owner.worker_id] for one in known],
            others=[[0.0] * windows for _ in names],
            candidates=[[numbers[w] for w in usable.get(name, ())] for name in names],
            copies=count,
            slack=SLACK,
            tolerance=error,
        )
    )
    placed = [tuple(numbers[m.worker.worker_id] for m in one.group.members[1:]) for one in known]
    sizes = [float(one.size_bytes) for one in known]
    budget = max(BYTES_PART * math.fsum(sizes) * count, *sizes)
    moves = improve(costs, placed, sizes, ERRORS_OF_ALL * error, budget)
    swaps = [_swap(costs, move, known[move.node].group, names, error) for move in moves]
    return [swap for swap in swaps if swap.gain >= swap.needed and allowed(swap)]


def _swap(costs: Costs, move: CopyMove, group: ReplicaGroup, names: Sequence[str], error: float) -> Swap:
    def candidate(worker: int) -> Candidate:
        return Candidate(names[worker], costs.correlation(move.node, worker))

    free = costs.histories.candidates[costs.histories.owners[move.node]]
    others = [candidate(w) for w in free if w != move.target and group.member(names[w]) is None]
    best = min(others, key=lambda found: (found.correlation, found.worker), default=None)
    return Swap(group.group, candidate(move.origin), candidate(move.target), best, error)


def _numbers(known: Iterable[Copied], usable: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """A number for each present or possible worker of the query."""
    members = (member.worker.worker_id for one in known for member in one.group.members)
    named = dict.fromkeys((*members, *(w for others in usable.values() for w in others)))
    return {worker: number for number, worker in enumerate(named)}
