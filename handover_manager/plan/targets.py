"""Targets for the virtual nodes of an intent, from the eligible workers, the weights and the holders of replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.plan.balance import Choice, Item, even_out, move_off
from handover_manager.plan.intents import Drain, Intent, Rebalance, ScaleIn, ScaleOut, Weight
from handover_manager.plan.move import lacking_bytes, state_bytes
from handover_manager.plan.work import Work, check_reported
from handover_manager.view import ClusterView, groups_of
from rhino_core.errors import ConflictError, PreconditionError, UnavailableError, UnknownError
from rhino_core.ids import VirtualNode

# A worker at most this part above the mean is not worth another move. Task times vary by that much anyway.
SLACK = {Weight.BYTES: 0.05, Weight.ROWS: 0.05, Weight.TIME: 0.1, Weight.COUNT: 0.0}


def choose_targets(
    intent: Intent,
    nodes: Mapping[VirtualNode, tuple[int, ...]],
    desired: Mapping[VirtualNode, str],
    arriving: Mapping[str, str],
    view: ClusterView,
    work: Mapping[VirtualNode, Work],
) -> dict[VirtualNode, Choice]:
    """A new worker for each virtual node that `intent` moves. Virtual nodes without state are left out.

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
            return even_out(_items(nodes, desired, view, by, work), room, slack=SLACK[by])
        case ScaleOut(workers, by):
            _check_known(workers, view)
            closed = [worker for worker in workers if worker not in room]
            if closed:
                raise UnavailableError(
                    f"workers {', '.join(closed)} take nothing: not live, draining, or their disk is full or failing"
                )
            return even_out(_items(nodes, desired, view, by, work), room, workers, slack=SLACK[by])


def _off(
    leaving: tuple[str, ...],
    nodes: Mapping[VirtualNode, tuple[int, ...]],
    desired: Mapping[VirtualNode, str],
    arriving: Mapping[str, str],
    view: ClusterView,
    room: Mapping[str, int],
) -> dict[VirtualNode, Choice]:
    _check_known(leaving, view)
    for worker in leaving:
        if worker in arriving:
            raise ConflictError(f"handover {arriving[worker]} moves to worker {worker}: wait for its end or cancel it")
    staying = {worker: size for worker, size in room.items() if worker not in leaving}
    _check_anybody(staying)
    return move_off(_items(nodes, desired, view, Weight.BYTES, {}), leaving, staying)


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


def _items(
    nodes: Mapping[VirtualNode, tuple[int, ...]],
    desired: Mapping[VirtualNode, str],
    view: ClusterView,
    by: Weight,
    work: Mapping[VirtualNode, Work],
) -> list[Item]:
    found = []
    for node, operators in sorted(nodes.items()):
        groups = view.known(groups_of(node, operators))
        if node not in desired or not groups:
            continue
        size = state_bytes(groups)
        lacking = {worker: lacking_bytes(groups, worker) for worker in view.workers}
        holders = frozenset(view.holders(groups_of(node, operators)))
        found.append(Item(node, desired[node], _weight(by, size, work.get(node)), size, holders, lacking))
    if by in (Weight.ROWS, Weight.TIME):
        check_reported((item.node for item in found), work, by.value)
    return found


def _weight(by: Weight, size: int, work: Work | None) -> int:
    """Weight of a virtual node, at least 1: an empty one counts too, so that a young job is also spread."""
    match by:
        case Weight.BYTES:
            return max(size, 1)
        case Weight.ROWS:
            return max((work.rows if work else 0) or 0, 1)
        case Weight.TIME:
            return max(round(work.task_s * 1e6) if work else 0, 1)
        case Weight.COUNT:
            return 1
