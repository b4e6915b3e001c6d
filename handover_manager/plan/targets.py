"""Targets for the virtual nodes of an intent, from the eligible workers, the weights and the holders of replicas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from handover_manager.plan.holdings import Holding
from handover_manager.plan.situation import Situation
from handover_manager.plan.work import Work, check_reported
from handover_manager.view import ClusterView
from rhino_core.errors import ConflictError, NoSpaceError, PreconditionError, UnavailableError, UnknownError
from rhino_core.ids import VirtualNode
from rhino_core.planning.goals import Goals
from rhino_core.planning.model import Model, Site
from rhino_core.planning.propose import Hot, propose
from rhino_model.handovers import HotNode
from rhino_model.intents import Adapt, Drain, Intent, Rebalance, ScaleIn, ScaleOut, Weight

HOT_BYTES_MIN = 64 << 20  # less state is copied within seconds wherever it lies: no imbalance of it is worth a line


def hot_nodes(hot: Iterable[Hot], by: Weight) -> tuple[HotNode, ...]:
    """Those of a plan that balances this weight, the heaviest first."""
    least = HOT_BYTES_MIN if by is Weight.BYTES else 0
    named = [one for one in hot if by is not Weight.COUNT and one.load >= least]
    named.sort(key=lambda one: (-one.shares, one.node))
    return tuple(HotNode(one.node, one.worker, by, one.shares) for one in named)


# A worker at most this part above the mean is not worth another move. Task times vary by that much anyway.
SLACK = {Weight.BYTES: 0.05, Weight.ROWS: 0.05, Weight.TIME: 0.1, Weight.COUNT: 0.0}


class Choice(NamedTuple):
    """The target of a virtual node, and the reason for it, for people."""

    worker: str
    why: str


class Chosen(NamedTuple):
    """A new worker for each moving virtual node, and the hot virtual nodes."""

    choices: dict[VirtualNode, Choice]
    hot: tuple[HotNode, ...] = ()


def choose_targets(intent: Intent, situation: Situation) -> Chosen:
    """Chooses the virtual nodes and targets of `intent`. Virtual nodes without state are left out.

    Raises UnknownError and UnavailableError for workers, ConflictError while a handover moves to a worker to be
    emptied, NoSpaceError, and PreconditionError if no worker is eligible or the work is not known.
    """
    view = situation.view
    room = {w: seen.free_bytes for w, seen in view.workers.items() if seen.eligible}
    match intent:
        case Drain(worker):
            return _off((worker,), situation, room)
        case ScaleIn(workers):
            return _off(workers, situation, room)
        case Rebalance(by):
            _check_anybody(room)
            goals = Goals(by, SLACK[by], pinned=situation.pinned, barred=_barred(situation, room))
            return _proposed(model_of(situation, by, room), goals)
        case Adapt(band):
            _check_anybody(room)
            goals = Goals(Weight.TIME, band, pinned=situation.pinned, barred=situation.barred)
            return _proposed(model_of(situation, Weight.TIME, room), goals)
        case ScaleOut(workers, by):
            _check_known(workers, view)
            closed = [worker for worker in workers if worker not in room]
            if closed:
                raise UnavailableError(
                    f"workers {', '.join(closed)} take nothing: not live, draining, or their disk is full or failing"
                )
            goals = Goals(by, SLACK[by], receivers=frozenset(workers))
            return _proposed(model_of(situation, by, room), goals)


def _off(leaving: tuple[str, ...], situation: Situation, room: Mapping[str, int]) -> Chosen:
    view, arriving = situation.view, situation.arriving
    _check_known(leaving, view)
    for worker in leaving:
        if worker in arriving:
            raise ConflictError(f"handover {arriving[worker]} moves to worker {worker}: wait for its end or cancel it")
    staying = {worker: size for worker, size in room.items() if worker not in leaving}
    _check_anybody(staying)
    model = model_of(situation, Weight.BYTES, staying, frozenset(leaving))
    goals = Goals(Weight.BYTES, math.inf, barred=_barred(situation, staying))
    try:
        return _proposed(model, goals)
    except NoSpaceError:  # slow tasks are better than a worker that cannot be removed
        return _proposed(model, replace(goals, barred={}))


def _barred(situation: Situation, room: Mapping[str, int]) -> dict[VirtualNode, frozenset[str]]:
    """Leaves out virtual nodes barred from every worker with room."""
    return {node: workers for node, workers in situation.barred.items() if not room.keys() <= workers}


def _check_known(workers: Iterable[str], view: ClusterView) -> None:
    unknown = [worker for worker in workers if worker not in view.workers]
    if unknown:
        known = ", ".join(sorted(view.workers)) or "none"
        raise UnknownError(f"workers {', '.join(map(repr, unknown))}: unknown; known are {known}")


def _check_anybody(room: Mapping[str, int]) -> None:
    if not room:
        raise PreconditionError(
            "no other worker is live with room on its disk and not being drained: start more sidecars"
        )


def _proposed(model: Model, goals: Goals) -> Chosen:
    plan = propose(model, goals)
    return Chosen({move.node: Choice(move.target, move.why) for move in plan.moves}, hot_nodes(plan.hot, goals.weight))


def model_of(
    situation: Situation,
    by: Weight,
    room: Mapping[str, int],
    leaving: frozenset[str] = frozenset(),
) -> Model:
    """The workers of `room`, the ones to be emptied, and the virtual nodes with state on any of them.

    `room` is in bytes for each eligible worker. If workers are to be emptied, only their virtual nodes move. The model
    then has copies of these only, and no more than the sizes of the others.
    """
    view, model = situation.view, Model()
    model.put_workers(
        [
            Site(worker, view.workers[worker].worker.zone, room.get(worker, 0), stays=worker in room)
            for worker in sorted({*room, *leaving})
        ]
    )
    placed = _placed(situation)
    if by in (Weight.ROWS, Weight.TIME):
        check_reported([node for node, _, _ in placed], situation.work, by.value)
    placed = [found for found in placed if found.worker in model.worker_index]
    reachable = {worker for worker in model.worker_index if view.reachable(worker)}
    moving = [found for found in placed if not leaving or found.worker in leaving]
    copies = {
        found.node: tuple(w for w in found.holding.near().holders if w in reachable and w != found.worker)
        for found in moving
    }
    nodes = [found.node for found in placed]
    model.put_nodes(
        nodes,
        [found.worker for found in placed],
        _loads(placed, by, situation.work),
        [copies.get(node, ()) for node in nodes],
        {found.node: lacking for found in moving if (lacking := _lacking(found, model))},
    )
    return model


def _lacking(placed: _Placed, model: Model) -> dict[str, float]:
    """The missing bytes of other workers of the model with a part of the virtual node."""
    others = placed.holding.near().lacking.items()
    return {name: float(size) for name, size in others if name in model.worker_index and name != placed.worker}


class _Placed(NamedTuple):
    """A virtual node with state, and its desired worker."""

    node: VirtualNode
    worker: str
    holding: Holding


def _placed(situation: Situation) -> list[_Placed]:
    """In order. Virtual nodes without state, or without a desired worker, are left out."""
    view, desired, found = situation.view, situation.desired, list[_Placed]()
    for node in sorted(situation.nodes):
        worker = desired.get(node)
        if worker is not None:
            holding = situation.holdings.of(node, situation.nodes[node], view)
            if holding is not None:
                found.append(_Placed(node, worker, holding))
    return found


def _loads(placed: Sequence[_Placed], by: Weight, work: Mapping[VirtualNode, Work]) -> dict[Weight, list[float]]:
    """The bytes, and the weight to balance. An empty virtual node counts a little: a young job is also spread."""
    loads: dict[Weight, list[float]] = {Weight.BYTES: [max(found.holding.size_bytes, 1) for found in placed]}
    if by is Weight.ROWS:
        loads[by] = [max(work[found.node].rows or 0, 1) for found in placed]
    if by is Weight.TIME:
        loads[by] = [max(work[found.node].task_s, 1e-6) for found in placed]
    return loads
