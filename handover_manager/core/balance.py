"""Choice of targets: virtual nodes as weights, workers as bins with room (Rhino 3.5; Madsen & Zhou, section 4)."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rhino.errors import NoSpaceError
from rhino.ids import VirtualNode


@dataclass(frozen=True, slots=True)
class Item:
    """A virtual node where it is now. `lacking`: bytes that each worker would have to receive (absent: all)."""

    node: VirtualNode
    worker: str
    weight: int
    state_bytes: int
    holders: frozenset[str]
    lacking: Mapping[str, int]

    def cost(self, worker: str) -> int:
        return 0 if worker in self.holders else self.lacking.get(worker, self.state_bytes)


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a virtual node goes, and why there, for people."""

    worker: str
    why: str


LEAST_LOADED = "the least loaded worker with room"
ASKED_FOR = "the least loaded of the workers that were asked for"


class Bins:
    """Loads and room of the workers while choices are made. `room`: bytes that each eligible worker may receive."""

    def __init__(self, items: Iterable[Item], room: Mapping[str, int]) -> None:
        self.room = dict(room)
        self.load = dict.fromkeys(room, 0)
        for item in items:
            self.load[item.worker] = self.load.get(item.worker, 0) + item.weight

    def fits(self, item: Item, worker: str) -> bool:
        return worker in self.room and item.cost(worker) <= self.room[worker]

    def put(self, item: Item, origin: str, worker: str) -> None:
        self.load[origin] -= item.weight
        self.load[worker] += item.weight
        if origin in self.room and origin != item.worker:
            self.room[origin] += item.cost(origin)  # an earlier choice of this plan is taken back
        if worker != item.worker:
            self.room[worker] -= item.cost(worker)


def move_off(items: Collection[Item], leaving: Collection[str], room: Mapping[str, int]) -> dict[VirtualNode, Choice]:
    """A place elsewhere for every item on a `leaving` worker: its holders first, the least loaded of them.

    Raises NoSpaceError when some item fits nowhere.
    """
    bins = Bins(items, {worker: size for worker, size in room.items() if worker not in leaving})
    chosen: dict[VirtualNode, Choice] = {}
    moving = [item for item in items if item.worker in leaving]
    # The least choice first, then the heaviest, so that the light ones even out what is left.
    for item in sorted(moving, key=lambda i: (len(i.holders & bins.room.keys()), -i.weight, i.node)):
        fitting = [worker for worker in bins.room if bins.fits(item, worker)]
        if not fitting:
            raise NoSpaceError(
                f"virtual node {item.node.name} of job {item.node.job} ({item.state_bytes} bytes) fits on no other "
                f"worker of {', '.join(sorted(bins.room)) or 'none'}: add workers or free disk space"
            )
        target = min(fitting, key=lambda w: (w not in item.holders, bins.load[w], w))
        bins.put(item, item.worker, target)
        asked = bins.room.keys()
        chosen[item.node] = Choice(target, _why(item, target, asked, "no holder of a replica is free: " + LEAST_LOADED))
    return chosen


def even_out(
    items: Collection[Item], room: Mapping[str, int], receivers: Collection[str] | None = None, *, slack: float
) -> dict[VirtualNode, Choice]:
    """Moves that bring every worker of `room` near the mean load, from the fullest first; few, but not provably fewest
    unless all weights are equal. `receivers`: only these take some (None: all). `slack`: with unequal weights, by how
    much of the mean a worker may stay above it."""
    movable = [item for item in items if item.worker in room]
    bins = Bins(movable, room)
    takers = sorted(worker for worker in room if receivers is None or worker in receivers)
    if len({item.weight for item in movable}) <= 1:
        slack = 0.0
    on: dict[str, list[Item]] = {worker: [] for worker in room}  # the heaviest first
    for item in sorted(movable, key=lambda i: (-i.weight, i.node)):
        on[item.worker].append(item)
    chosen: dict[VirtualNode, tuple[Item, str]] = {}
    for _ in range(4 * len(movable)):
        found = _next_move(on, bins, takers, slack)
        if found is None:
            break
        item, origin, target = found
        bins.put(item, origin, target)
        on[origin].remove(item)
        bisect.insort(on[target], item, key=lambda i: (-i.weight, i.node))
        chosen[item.node] = (item, target)
    otherwise = f"no holder of a replica is below the mean: {LEAST_LOADED}" if receivers is None else ASKED_FOR
    return {
        node: Choice(target, _why(item, target, takers, otherwise))
        for node, (item, target) in chosen.items()
        if target != item.worker
    }


def _next_move(
    on: Mapping[str, list[Item]], bins: Bins, takers: list[str], slack: float
) -> tuple[Item, str, str] | None:
    """Item, origin and target: from the fullest worker that can give."""
    count, total = len(bins.load), sum(bins.load.values())
    below = sorted((w for w in takers if bins.load[w] * count < total), key=lambda w: bins.load[w])
    for origin in sorted(bins.load, key=lambda w: (-bins.load[w], w)):
        if bins.load[origin] * count <= total * (1 + slack):
            return None
        found = _best_of(on[origin], origin, bins, below, count, total)
        if found is not None:
            return found[0], origin, found[1]
    return None


def _best_of(
    items: list[Item], origin: str, bins: Bins, below: list[str], count: int, total: int
) -> tuple[Item, str] | None:
    """First what a receiver has whole room for below the mean, then what still takes off the peak; to a holder if there
    is one, the heaviest first. `items` come by weight, so the first of the best class ends the search."""
    load = bins.load[origin]
    best: tuple[tuple[float, ...], Item, str] | None = None
    for item in items:
        for target in _candidates(item, origin, bins, below):
            after = bins.load[target] + item.weight
            if after >= load or not item.weight:
                continue
            held = target in item.holders or target == item.worker
            rank: tuple[float, ...]
            if after * count <= total:
                dips = (load - item.weight) * count < total  # the origin would fall below the mean itself
                rank = (0, dips, not held, -item.weight, bins.load[target])
            else:
                rank = (1, 0, 0, -item.weight * (load - after) * (2 if held else 1), bins.load[target])
            if best is None or rank < best[0]:
                best = (rank, item, target)
        if best is not None and best[0][:3] == (0, False, False):
            break
    return None if best is None else (best[1], best[2])


def _candidates(item: Item, origin: str, bins: Bins, below: list[str]) -> list[str]:
    """Holders, and the least loaded other one: what else could be said for a fuller one?"""
    holders = [w for w in below if w in item.holders and w != origin and bins.fits(item, w)]
    other = next((w for w in below if w not in item.holders and w != origin and bins.fits(item, w)), None)
    return holders if other is None else [*holders, other]


def _why(item: Item, target: str, asked: Iterable[str], otherwise: str) -> str:
    """`asked`: workers that might have taken the item; `otherwise`: why one that holds no replica."""
    holders = len(item.holders.intersection(asked) - {item.worker})
    if target in item.holders:
        return f"the least loaded of {holders} holders of a replica" if holders > 1 else "the only other holder"
    return otherwise
