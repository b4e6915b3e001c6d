"""Targets for the virtual nodes of an intent, from the eligible workers, the weights and the holders of replicas."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from handover_manager.plan.hot import HotNode, hot_nodes
from handover_manager.plan.intents import Adapt, Drain, Intent, Rebalance, ScaleIn, ScaleOut, Weight
from handover_manager.plan.work import Work, check_reported
from handover_manager.view import ClusterView, groups_of
from rhino_core.errors import ConflictError, PreconditionError, UnavailableError, UnknownError
from rhino_core.ids import GroupId, Member, VirtualNode
from rhino_core.planning.goals import Goals
from rhino_core.planning.model import Load, Model, Site
from rhino_core.planning.propose import explain_all, propose

# A worker at most this part above the mean is not worth another move. Task times vary by that much anyway.
SLACK = {Weight.BYTES: 0.05, Weight.ROWS: 0.05, Weight.TIME: 0.1, Weight.COUNT: 0.0}


class Choice(NamedTuple):
    """The target of a virtual node, and the reason for it, for people."""

    worker: str
    why: str


class Chosen(NamedTuple):
    """A new worker for each virtual node that moves, and the hot virtual nodes."""

    choices: dict[VirtualNode, Choice]
    hot: tuple[HotNode, ...] = ()


def choose_targets(
    intent: Intent | Adapt,
    nodes: Mapping[VirtualNode, tuple[int, ...]],
    desired: Mapping[VirtualNode, str],
    arriving: Mapping[str, str],
    view: ClusterView,
    work: Mapping[VirtualNode, Work],
    pinned: frozenset[VirtualNode] = frozenset(),
) -> Chosen:
    """Chooses what `intent` moves, and where to. Virtual nodes without state are left out.

    A rebalance and adaptation leave `pinned` ones where they are.

    Raises UnknownError and UnavailableError for workers, ConflictError while a handover moves to a worker that must be
    emptied, NoSpaceError, and PreconditionError if no worker is eligible or `work` is not known.
    """
    room = {w: seen.free_bytes for w, seen in view.workers.items() if seen.eligible}
    match intent:
        case Drain(worker):
            return _off((worker,), nodes, desired, arriving, view, room)
        case ScaleIn(workers):
            return _off(workers, nodes, desired, arriving, view, room)
        case Rebalance(by):
            _check_anybody(room)
            return _proposed(_model(nodes, desired, view, work, by, room), Goals({by: SLACK[by]}, pinned=pinned))
        case Adapt(by, band, kept):
            _check_anybody(room)
            bands = {**dict(kept), by: SLACK[by] if band is None else band}
            goals = Goals(bands, pinned=pinned, kept=frozenset(weight for weight, _ in kept))
            return _proposed(_model(nodes, desired, view, work, by, room), goals)
        case ScaleOut(workers, by):
            _check_known(workers, view)
            closed = [worker for worker in workers if worker not in room]
            if closed:
                raise UnavailableError(
                    f"workers {', '.join(closed)} take nothing: not live, draining, or their disk is full or failing"
                )
            goals = Goals({by: SLACK[by]}, receivers=frozenset(workers))
            return _proposed(_model(nodes, desired, view, work, by, room), goals)


def _off(
    leaving: tuple[str, ...],
    nodes: Mapping[VirtualNode, tuple[int, ...]],
    desired: Mapping[VirtualNode, str],
    arriving: Mapping[str, str],
    view: ClusterView,
    room: Mapping[str, int],
) -> Chosen:
    _check_known(leaving, view)
    for worker in leaving:
        if worker in arriving:
            raise ConflictError(f"handover {arriving[worker]} moves to worker {worker}: wait for its end or cancel it")
    staying = {worker: size for worker, size in room.items() if worker not in leaving}
    _check_anybody(staying)
    model = _model(nodes, desired, view, {}, Weight.BYTES, staying, leaving)
    return _proposed(model, Goals({Weight.BYTES: math.inf}))


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
    reasons = explain_all(plan, goals)
    moves = ((index, plan.move_of(index)) for index in sorted(plan.placed))
    return Chosen({move.node: Choice(move.target, reasons[index].why) for index, move in moves}, hot_nodes(plan, goals))


def _model(
    nodes: Mapping[VirtualNode, tuple[int, ...]],
    desired: Mapping[VirtualNode, str],
    view: ClusterView,
    work: Mapping[VirtualNode, Work],
    by: Weight,
    room: Mapping[str, int],
    leaving: Collection[str] = (),
) -> Model:
    """The workers of `room`, those that are to be emptied, and the virtual nodes with state that are on any of them.

    `room` is in bytes that each eligible worker may receive.
    """
    model = Model()
    for worker in sorted({*room, *leaving}):
        at, stays = view.workers[worker].worker, worker in room
        place = (at.host, at.zone, at.rack)
        model.put_worker(Site(worker, *place, room_bytes=room.get(worker, 0), stays=stays, takes=stays))
    placed = [node for node in sorted(nodes) if node in desired and view.known(groups_of(node, nodes[node]))]
    if by in (Weight.ROWS, Weight.TIME):
        check_reported(placed, work, by.value)
    for node in placed:
        if desired[node] in model.worker_index:
            _put(model, node, groups_of(node, nodes[node]), desired[node], view, work.get(node))
    return model


def _put(
    model: Model, node: VirtualNode, groups: tuple[GroupId, ...], worker: str, view: ClusterView, work: Work | None
) -> None:
    """Adds the virtual node. An empty one counts a little, so that a young job is also spread.

    Only members and workers that store some of it are looked at, because there may be very many workers.
    """
    seen = view.known(groups)
    stored = [dict(group.stored_bytes) for group in seen]
    owned = [there.get(group.owner, 0) for group, there in zip(seen, stored, strict=True)]
    size = max(sum(owned), 1)
    rows = None if work is None else max(work.rows or 0, 1)
    time_s = None if work is None else max(work.task_s, 1e-6)
    model.put_node(node, worker, Load(time_s, rows, size))
    near = {name for there in stored for name in there}.union(*(map(_id_of, group.group.members) for group in seen))
    lacking = dict[str, float]()
    for name in [name for name in near if name in model.worker_index]:
        parts = zip(seen, stored, owned, strict=True)
        left = sum(max(whole - there.get(name, 0), 0) for group, there, whole in parts if not group.is_whole(name))
        if left != size:
            lacking[name] = left
    copies = tuple(name for name in view.holders(groups) if name in model.worker_index and name != worker)
    model.hold(node, copies, lacking)


def _id_of(member: Member) -> str:
    return member.worker.worker_id
