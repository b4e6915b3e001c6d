"""Placement of secondary copies by bin packing (Rhino 4.2.2, phase 1): pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rhino_core.ids import ReplicaGroup, Worker

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


def choose(
    bins: Iterable[Bin],
    count: int,
    taken: Collection[Worker],
    preferred: Sequence[str] = (),
    holders: Collection[str] = (),
    near_executors: Collection[str] = (),
) -> list[Worker]:
    """Up to `count` distinct workers outside `taken`. Deterministic.

    A closed worker is eligible only if it is in `holders`. The criteria in order: the position in `preferred`, not
    suspected, a host that is not taken yet, the id in `near_executors`, the least load.
    """
    ids = {worker.worker_id for worker in taken}
    hosts = {worker.host for worker in taken}
    free = [b for b in bins if b.worker.worker_id not in ids and (not b.closed or b.worker.worker_id in holders)]
    chosen: list[Worker] = []
    order = {wid: position for position, wid in enumerate(preferred)}

    def rank(b: Bin) -> tuple[object, ...]:
        wid = b.worker.worker_id
        return (
            order.get(wid, len(order)),
            b.suspected,
            b.worker.host in hosts,
            wid not in near_executors,
            b.load_bytes,
            wid,
        )

    while free and len(chosen) < count:
        best = min(free, key=rank)
        free.remove(best)
        chosen.append(best.worker)
        hosts.add(best.worker.host)
    return chosen
