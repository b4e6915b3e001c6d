"""Placement of secondary copies by bin packing (Rhino 4.2.2, phase 1): pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rhino_core.ids import Worker
from rhino_core.planning.copysets import Sets
from rhino_core.planning.spread import Place, Spread


@dataclass(slots=True, eq=False)
class Bin:
    """A present worker and the bytes of its groups.

    `suspected`: its stream broke, so it may be lost soon. `closed`: it takes no further copies, because its disk is
    full or failing, or because it lags, is mute or is draining.
    """

    worker: Worker
    load_bytes: int
    suspected: bool = False
    closed: bool = False
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        self.place = place_of(self.worker)


@dataclass(frozen=True, slots=True)
class Wish:
    """Preferences of a choice of workers.

    `first`: ids that come before all others, whatever their place. `preferred`: ids that come first among workers that
    spread the group as well. `holders`: ids of workers with the files, eligible even if they are closed.
    `near_executors`: ids of workers with executors of the query. `leaving`: ids of taken workers about to leave; their
    places do not count. `members`: how many the group will have; 0: do not limit the sets of workers in use.
    """

    first: Sequence[str] = ()
    preferred: Sequence[str] = ()
    holders: Collection[str] = ()
    near_executors: Collection[str] = ()
    leaving: Collection[str] = ()
    members: int = 0


NO_WISH = Wish()


def place_of(worker: Worker) -> Place:
    return Place(worker.host, worker.zone, worker.rack)


def choose(
    bins: Iterable[Bin], count: int, taken: Collection[Worker], wish: Wish = NO_WISH, sets: Sets | None = None
) -> list[Worker]:
    """Up to `count` distinct workers outside `taken`. Deterministic.

    The criteria in order: the position in `wish.first`; not suspected; another host, zone and rack than the taken
    workers; the position in `wish.preferred`; near executors; `sets`; the least load.
    """
    ids = {worker.worker_id for worker in taken}
    staying = [worker for worker in taken if worker.worker_id not in wish.leaving]
    spread = Spread(map(place_of, staying))
    if sets is not None:
        sets.choose(*(worker.worker_id for worker in staying))
    free = [b for b in bins if b.worker.worker_id not in ids and (not b.closed or b.worker.worker_id in wish.holders)]
    criteria = _criteria(spread, wish, sets)
    chosen: list[Worker] = []
    while free and len(chosen) < count:
        best = _best(free, criteria)
        free.remove(best)
        chosen.append(best.worker)
        spread.add(best.place)
        if sets is not None:
            sets.choose(best.worker.worker_id)
    return chosen


Criteria = list[Callable[[Bin], Any]]


def _criteria(spread: Spread, wish: Wish, sets: Sets | None) -> Criteria:
    """The criteria by their importance, without those equal for all workers. Less is better."""
    first = {wid: position for position, wid in enumerate(wish.first)}
    preferred = {wid: position for position, wid in enumerate(wish.preferred)}
    found: Criteria = []
    if first:
        found.append(lambda b: first.get(b.worker.worker_id, len(first)))
    found.append(lambda b: b.suspected and b.worker.worker_id not in preferred)
    found.append(lambda b: spread.rank(b.place))
    if preferred:
        found.append(lambda b: preferred.get(b.worker.worker_id, len(preferred)))
    if wish.near_executors:
        found.append(lambda b: b.worker.worker_id not in wish.near_executors)
    if sets is not None:
        found.append(lambda b: sets.rank(b.worker.worker_id))
    return [*found, lambda b: b.load_bytes, lambda b: b.worker.worker_id]


def _best(free: Sequence[Bin], criteria: Criteria) -> Bin:
    """The best one. There may be 1000: each criterion is applied only to equals by the ones before."""
    for criterion in criteria:
        if len(free) == 1:
            break
        values = [criterion(b) for b in free]
        least = min(values)
        free = [b for b, value in zip(free, values, strict=True) if value == least]
    return free[0]
