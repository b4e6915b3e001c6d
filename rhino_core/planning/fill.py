"""Places virtual nodes that are on no worker, or on one that must be emptied."""

from __future__ import annotations

import heapq

from rhino_core.errors import NoSpaceError
from rhino_core.planning.goals import Weight
from rhino_core.planning.state import State

LEAST_TAKING = 2  # at least half of the workers takes part in a round
ROUNDS = 4  # so many virtual nodes without a worker for each worker are placed in rounds, fewer one by one


def place_leavers(state: State) -> None:
    """Places every virtual node whose worker may not keep it. Raises NoSpaceError if one fits nowhere.

    Workers with all of its state come first, among them the least loaded, as long as they stay within their bands.
    """
    model = state.model
    leaving = set(model.homeless)
    for worker, site in enumerate(model.sites):
        if site is not None and not site.stays:
            leaving |= model.owned[worker]
    pool = _by_size(state, leaving)
    held = [node for node in pool if model.copies[node]]
    held = _to_holders(state, sorted(held, key=lambda node: len(state.may_hold(node))))  # stable: the largest first
    pool = [node for node in pool if not model.copies[node]] + held
    fresh = [node for node in pool if node in model.homeless]
    if len(fresh) >= ROUNDS * len(state.receivers) > 0:
        pool = _in_rounds(state, fresh) + [node for node in pool if node not in model.homeless]
    _one_by_one(state, pool)


def _by_size(state: State, nodes: set[int]) -> list[int]:
    """The largest first. The size is the greatest part of a share that the virtual node takes in any weight."""
    scales = [1 / share.fair if share.fair else 0.0 for share in state.shares]
    columns = state.columns
    order = sorted(nodes)
    first, *rest = ([column[node] * scale for node in order] for column, scale in zip(columns, scales, strict=True))
    sizes = list(map(max, first, *rest)) if rest else first
    return [order[i] for i in sorted(range(len(order)), key=sizes.__getitem__, reverse=True)]


def _to_holders(state: State, pool: list[int]) -> list[int]:
    """Puts each on the least loaded worker with all of its state that stays within its bands. Returns the others."""
    left = []
    for node in pool:
        holders = [h for h in state.may_hold(node) if not state.overload_with(h, state.weights_of(node))]
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
    """The least loaded worker where the virtual node fits. Raises NoSpaceError.

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
    sites = (state.model.sites[worker] for worker in state.receivers)
    workers = ", ".join(sorted(site.worker_id for site in sites if site is not None)[:20]) or "none"
    raise NoSpaceError(
        f"virtual node {named.name if named else node} of job {named.job if named else '?'} ({size:.0f} bytes) fits on "
        f"no other worker of {workers}: add workers or free disk space"
    )


def _in_rounds(state: State, pool: list[int]) -> list[int]:
    """Places a large pool, the largest first. Returns those for which no worker has room.

    In a round each worker that lags behind receives one virtual node. The round is about the weight that is furthest
    from balance, compared with its band: whoever has least of it receives the one with most of it.
    """
    left: list[int] = []
    position = 0
    while position < len(pool):
        relative = [list(map(float.__mul__, *pair)) for pair in zip(state.loads, state.norms, strict=True)]
        taking = _lagging(state, relative, pool, position)
        chunk = pool[position : position + len(taking)]
        position += len(chunk)
        furthest = _furthest(state, relative, taking)
        taking = sorted(taking, key=relative[furthest].__getitem__)[: len(chunk)]
        chunk.sort(key=state.columns[furthest].__getitem__, reverse=True)
        sizes, room = state.model.columns[Weight.BYTES], state.room
        if any(sizes[node] > room[worker] for node, worker in zip(chunk, taking, strict=True)):
            pairs = list(zip(chunk, taking, strict=True))
            left += [node for node, worker in pairs if sizes[node] > room[worker]]
            pairs = [(node, worker) for node, worker in pairs if sizes[node] <= room[worker]]
            chunk, taking = [node for node, _ in pairs], [worker for _, worker in pairs]
        state.put_all(chunk, taking)
    return left


def _lagging(state: State, relative: list[list[float]], pool: list[int], position: int) -> list[int]:
    """The workers of a round: those whose level is lowest, give or take two of the next virtual nodes.

    `relative`: for each weight the loads over the shares. The level is their sum. Workers that have a whole share of
    one weight come last.
    """
    levels = list(map(sum, zip(*relative, strict=True)))
    highest = list(map(max, zip(*relative, strict=True)))
    taking = [worker for worker in state.receivers if highest[worker] < 1]
    if len(taking) < len(state.receivers) // LEAST_TAKING:
        taking = state.receivers
    middle = pool[min(position + len(taking) // 2, len(pool) - 1)]
    step = sum(
        column[middle] / share.fair for column, share in zip(state.columns, state.shares, strict=True) if share.fair
    )
    bar = min(levels[worker] for worker in taking) + 2 * step
    lagging = [worker for worker in taking if levels[worker] <= bar]
    least = len(taking) // LEAST_TAKING
    return lagging if len(lagging) >= least else heapq.nsmallest(least, taking, key=levels.__getitem__)


def _furthest(state: State, relative: list[list[float]], taking: list[int]) -> int:
    """The position of the weight that is furthest from balance for its band."""
    spreads = []
    for weight, loads in zip(state.weights, relative, strict=True):
        there = [loads[worker] for worker in taking]
        band = min(max(state.goals.bands[weight], 0.001), 1.0)
        spreads.append((max(there) - min(there)) / band)
    return spreads.index(max(spreads))


def spread_hot(state: State) -> None:
    """Gives each virtual node that is heavier than a share a worker that has no other such virtual node."""
    for share, column in zip(state.shares, state.columns, strict=True):
        homes: dict[int, int] = {}
        rest = []
        for node in sorted(share.hot, key=lambda n: (-column[n], n)):
            if homes.setdefault(state.place_of(node), node) != node:
                rest.append(node)
        for node in rest:
            free = [w for w in state.receivers if w not in homes and state.fits(node, w)]
            if free:
                target = min(free, key=lambda w: (w not in state.model.copies[node], state.height(w), w))
                homes[target] = node
                state.put(node, target)
