"""Choice of targets: virtual nodes as weights, workers as bins with room (Rhino 3.5; Madsen & Zhou, section 4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rhino.errors import NoSpaceError
from rhino.ids import VirtualNode

SLACK = 0.05  # with unequal weights, a worker at most this far above the mean is not worth another move


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
        chosen[item.node] = Choice(target, _why(item, target, len(item.holders & bins.room.keys())))
    return chosen


def even_out(
    items: Collection[Item], room: Mapping[str, int], receivers: Collection[str] | None = None
) -> dict[VirtualNode, Choice]:
    """Moves that bring every worker of `room` near the mean load, from the fullest first; few, but not provably fewest
    unless all weights are equal. `receivers`: only these take some (None: all)."""
    bins = Bins([i for i in items if i.worker in room], room)
    here = {item.node: item.worker for item in items if item.worker in room}
    movable = {item.node: item for item in items if item.worker in room}
    takers = sorted(worker for worker in room if receivers is None or worker in receivers)
    slack = SLACK if len({item.weight for item in movable.values()}) > 1 else 0.0
    for _ in range(4 * len(movable)):
        step = _next_move(movable, here, bins, takers, slack)
        if step is None:
            break
        item, target = step
        bins.put(item, here[item.node], target)
        here[item.node] = target
    final = {node: worker for node, worker in here.items() if worker != movable[node].worker}
    return {n: Choice(w, _why(movable[n], w, len(movable[n].holders & room.keys()))) for n, w in final.items()}


def _next_move(
    movable: Mapping[VirtualNode, Item], here: Mapping[VirtualNode, str], bins: Bins, takers: list[str], slack: float
) -> tuple[Item, str] | None:
    """From the fullest worker that can give: first what a receiver has whole room for below the mean, then what still
    takes off the peak."""
    count, total = len(bins.load), sum(bins.load.values())
    for origin in sorted(bins.load, key=lambda w: (-bins.load[w], w)):
        load = bins.load[origin]
        if load * count <= total * (1 + slack):
            return None
        options: list[tuple[tuple[object, ...], Item, str]] = []
        for node, item in movable.items():
            if here[node] != origin or not item.weight:
                continue
            for target in takers:
                after = bins.load[target] + item.weight
                if target == origin or after >= load or bins.load[target] * count >= total:
                    continue
                if not bins.fits(item, target):
                    continue
                below = after * count <= total
                keeps_mean = (load - item.weight) * count >= total
                held = target in item.holders or target == item.worker
                gain = item.weight * (load - after)
                best = (held, item.weight) if below else (gain * (2 if held else 1), 0)
                rank = (not below, not keeps_mean if below else False, *(-b for b in best), bins.load[target], node)
                options.append(((*rank, target), item, target))
        if options:
            _, item, target = min(options, key=lambda option: option[0])
            return item, target
    return None


def _why(item: Item, target: str, holders: int) -> str:
    if target in item.holders:
        return f"the least loaded of {holders} holders of a replica" if holders > 1 else "the only other holder"
    return "no holder of a replica is free: the least loaded worker with room"
