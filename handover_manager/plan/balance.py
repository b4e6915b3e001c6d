"""Choice of targets: virtual nodes are weights, workers are bins with room (Rhino 3.5; Madsen & Zhou, section 4)."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rhino_core.errors import NoSpaceError
from rhino_core.ids import VirtualNode


@dataclass(frozen=True, slots=True)
class Item:
    """A virtual node at its present worker.

    `lacking` has the bytes that each worker would have to receive. A missing worker would have to receive all state.
    """

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
    """The target of a virtual node, and the reason for it, for people."""

    worker: str
    why: str


LEAST_LOADED = "the least loaded worker with room"
ASKED_FOR = "the least loaded of the workers that were asked for"


class Bins:
    """Loads and room of the workers during the choice. `room` is in bytes that each eligible worker may receive."""

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
            self.room[origin] += item.cost(origin)  # this undoes an earlier choice of the plan
        if worker != item.worker:
            self.room[worker] -= item.cost(worker)


def move_off(items: Collection[Item], leaving: Collection[str], room: Mapping[str, int]) -> dict[VirtualNode, Choice]:
    """A target for every item on a `leaving` worker. Holders come first, among them the least loaded.

    Raises NoSpaceError if an item fits nowhere.
    """
    bins = Bins(items, {worker: size for worker, size in room.items() if worker not in leaving})
    chosen: dict[VirtualNode, Choice] = {}
    moving = [item for item in items if item.worker in leaving]
    # Items with the fewest holders come first, then the heaviest. The light ones then even out the rest.
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
    """Moves that bring every worker of `room` near the mean load, from the fullest worker first.

    The moves are few. They are provably the fewest only if all weights are equal. Only `receivers` receive items (None:
    all workers). `slack` is the part of the mean by which a worker may exceed it; it applies to unequal weights only.
    """
    movable = [item for item in items if item.worker in room]
    bins = Bins(movable, room)
    takers = sorted(worker for worker in room if receivers is None or worker in receivers)
    if len({item.weight for item in movable}) <= 1:
        slack = 0.0
    on: dict[str, list[Item]] = {worker: [] for worker in room}  # heaviest first
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
    """The next item, its origin and its target. The origin is the fullest worker with a useful move."""
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
    """The best item to move from `origin`, and its target.

    First come items that leave the target at or below the mean, then items that only lower the peak. A holder is a
    better target, and heavier items come first. `items` are sorted by weight, so the first item of the best class ends
    the search.
    """
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
                dips = (load - item.weight) * count < total  # the origin itself would fall below the mean
                rank = (0, dips, not held, -item.weight, bins.load[target])
            else:
                rank = (1, 0, 0, -item.weight * (load - after) * (2 if held else 1), bins.load[target])
            if best is None or rank < best[0]:
                best = (rank, item, target)
        if best is not None and best[0][:3] == (0, False, False):
            break
    return None if best is None else (best[1], best[2])


def _candidates(item: Item, origin: str, bins: Bins, below: list[str]) -> list[str]:
    """The holders below the mean, and the least loaded other worker.

    A fuller worker without a replica is never better.
    """
    holders = [w for w in below if w in item.holders and w != origin and bins.fits(item, w)]
    other = next((w for w in below if w not in item.holders and w != origin and bins.fits(item, w)), None)
    return holders if other is None else [*holders, other]


def _why(item: Item, target: str, asked: Iterable[str], otherwise: str) -> str:
    """The reason for a target, for people.

    `asked` are the workers that could have received the item. `otherwise` is the reason for a target without a replica.
    """
    holders = len(item.holders.intersection(asked) - {item.worker})
    if target in item.holders:
        return f"the least loaded of {holders} holders of a replica" if holders > 1 else "the only other holder"
    return otherwise
