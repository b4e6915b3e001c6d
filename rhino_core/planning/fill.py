"""Places virtual nodes whose worker must be emptied, and parts the hot ones."""

from __future__ import annotations

import heapq

from rhino_core.errors import NoSpaceError
from rhino_core.planning.goals import Weight
from rhino_core.planning.state import State


def place_leavers(state: State) -> None:
    """Places every virtual node that its worker may not keep. Raises NoSpaceError if one fits nowhere.

    Workers with all of its state come first, among them the least loaded, as long as they stay within their band.
    """
    model = state.model
    emptied = (worker for worker, site in enumerate(model.sites) if not site.stays)
    leaving = sorted(set[int]().union(*map(model.owned.__getitem__, emptied)))
    pool = sorted(leaving, key=state.column.__getitem__, reverse=True)  # the heaviest first
    held = sorted((node for node in pool if model.copies[node]), key=lambda node: len(state.may_hold(node)))  # stable
    _one_by_one(state, [*(node for node in pool if not model.copies[node]), *_to_holders(state, held)])


def _to_holders(state: State, pool: list[int]) -> list[int]:
    """Puts each on the least loaded worker with all of its state, within this worker's band. Returns the others."""
    left = []
    for node in pool:
        holders = [h for h in state.may_hold(node) if not state.overload_with(h, state.column[node])]
        if holders:
            state.put(node, min(holders, key=lambda h: (state.height(h), h)))
        else:
            left.append(node)
    return left


def _one_by_one(state: State, pool: list[int]) -> None:
    """Puts each on the least loaded worker with room. Raises NoSpaceError."""
    heap = [(state.height(worker), worker) for worker in state.receivers]
    heapq.heapify(heap)
    for node in pool:
        target = _lowest_with_room(state, heap, node)
        state.put(node, target)
        heapq.heappush(heap, (state.height(target), target))


def _lowest_with_room(state: State, heap: list[tuple[float, int]], node: int) -> int:
    """The least loaded worker with room for the virtual node. Raises NoSpaceError.

    `heap` may have outdated entries: a worker's height was lower then.
    """
    full: list[tuple[float, int]] = []
    found: int | None = None
    while heap:
        height, worker = heapq.heappop(heap)
        now = state.height(worker)
        if now > height:
            heapq.heappush(heap, (now, worker))
        elif not state.fits(node, worker):
            full.append((height, worker))
        else:
            found = worker
            break
    for entry in full:
        heapq.heappush(heap, entry)
    if found is not None:
        return found
    named, size = state.model.nodes[node], state.model.columns[Weight.BYTES][node]
    workers = ", ".join(sorted(state.model.sites[worker].worker_id for worker in state.receivers)[:20]) or "none"
    raise NoSpaceError(
        f"virtual node {named.name} of job {named.job} ({size:.0f} bytes) fits on no other worker of {workers}: "
        "add workers or free disk space"
    )


def spread_hot(state: State) -> None:
    """Gives each virtual node heavier than a share a worker without another such virtual node.

    Pinned ones keep their worker.
    """
    homes: dict[int, int] = {}
    rest = []
    for node in sorted(state.hot, key=lambda n: (n not in state.pinned, -state.column[n], n)):
        if homes.setdefault(state.place_of(node), node) != node and node not in state.pinned:
            rest.append(node)
    for node in rest:
        free = [w for w in state.receivers if w not in homes and state.fits(node, w)]
        if free:
            target = min(free, key=lambda w: (w not in state.model.copies[node], state.height(w), w))
            homes[target] = node
            state.put(node, target)
