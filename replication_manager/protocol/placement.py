"""Placement of secondary copies by bin packing (Rhino 4.2.2, phase 1): pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from replication_manager.protocol.load_histories import USUAL, Fit
from rhino_core.ids import ReplicaGroup, Worker
from rhino_core.planning.copysets import Sets
from rhino_core.planning.spread import Place, Spread

GROUP_BYTES_MIN = 1 << 20  # an empty group counts this much, so that new groups spread


@dataclass(frozen=True, slots=True)
class Bin:
    """A present worker and the bytes of its groups.

    `suspected`: its stream broke, so it may be lost soon. `closed`: it takes no further copies, because its disk is
    full or failing, or because it lags, is mute or is draining.
    """

    worker: Worker
    load_bytes: int
    suspected: bool = False
    closed: bool = False


def loads(workers: Iterable[Worker], groups: Iterable[ReplicaGroup], sizes: Mapping[object, int]) -> list[Bin]:
    """Bins of `workers`. `sizes` has the bytes of a group by its id; a missing group counts as empty."""
    workers = list(workers)
    found = {worker.worker_id: 0 for worker in workers}
    for group in groups:
        weight = max(sizes.get(group.group, 0), GROUP_BYTES_MIN)
        for member in group.members:
            if member.worker.worker_id in found:
                found[member.worker.worker_id] += weight
    return [Bin(worker, found[worker.worker_id]) for worker in workers]


def filled(bins: Iterable[Bin], workers: Collection[Worker], size_bytes: int) -> list[Bin]:
    """The bins after a group of this size was placed on `workers`."""
    weight = max(size_bytes, GROUP_BYTES_MIN)
    return [replace(b, load_bytes=b.load_bytes + weight) if b.worker in workers else b for b in bins]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of the workers to choose.

    `first`: ids that come before all others, whatever their place. `preferred`: ids that come first among workers that
    spread the group as well. `holders`: ids of workers with the files, eligible even if they are closed.
    `near_executors`: ids of workers on which the query runs. `leaving`: ids of taken workers that will leave, so that
    their places do not count. `members`: how many the group will have; 0: do not limit the sets of workers in use.
    `fits`: by id, how well workers suit a copy by their loads.
    """

    first: Sequence[str] = ()
    preferred: Sequence[str] = ()
    holders: Collection[str] = ()
    near_executors: Collection[str] = ()
    leaving: Collection[str] = ()
    members: int = 0
    fits: Mapping[str, Fit] = field(default_factory=dict)


NO_WISH = Wish()


def place_of(worker: Worker) -> Place:
    return Place(worker.host, worker.zone, worker.rack)


def choose(
    bins: Iterable[Bin], count: int, taken: Collection[Worker], wish: Wish = NO_WISH, sets: Sets | None = None
) -> list[Worker]:
    """Up to `count` distinct workers outside `taken`. Deterministic.

    The criteria in order: the position in `wish.first`; not suspected; another host, zone and rack than the taken
    workers; the position in `wish.preferred`; near executors; `sets`; `wish.fits`; the least load.
    """
    ids = {worker.worker_id for worker in taken}
    staying = [worker for worker in taken if worker.worker_id not in wish.leaving]
    spread = Spread(map(place_of, staying))
    if sets is not None:
        sets.choose(*(worker.worker_id for worker in staying))
    free = [b for b in bins if b.worker.worker_id not in ids and (not b.closed or b.worker.worker_id in wish.holders)]
    chosen: list[Worker] = []
    first = {wid: position for position, wid in enumerate(wish.first)}
    preferred = {wid: position for position, wid in enumerate(wish.preferred)}

    def rank(b: Bin) -> tuple[object, ...]:
        wid = b.worker.worker_id
        return (
            first.get(wid, len(first)),
            b.suspected and wid not in preferred,
            spread.closeness(place_of(b.worker)),
            preferred.get(wid, len(preferred)),
            wid not in wish.near_executors,
            sets.rank(wid) if sets is not None else 0,
            wish.fits.get(wid, USUAL),
            b.load_bytes,
            wid,
        )

    while free and len(chosen) < count:
        best = min(free, key=rank)
        free.remove(best)
        chosen.append(best.worker)
        spread.add(place_of(best.worker))
        if sets is not None:
            sets.choose(best.worker.worker_id)
    return chosen
