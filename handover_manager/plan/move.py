"""The move of one virtual node to another worker, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

from handover_manager.view import ClusterView, GroupSeen
from rhino_core.errors import PreconditionError
from rhino_core.ids import VirtualNode
from rhino_model.handovers import Move, MoveKind, groups_of


def make_move(
    node: VirtualNode,
    operators: tuple[int, ...],
    desired: Mapping[VirtualNode, str],
    target: str,
    view: ClusterView,
    why: str,
) -> Move:
    """The move of `node` to `target`. Raises PreconditionError while the virtual node has no state."""
    groups = view.known(groups_of(node, operators))
    if node not in desired or not groups:
        raise PreconditionError(f"virtual node {node.name} has no state yet: wait for the first logged batch")
    stored = sum(g.stored_bytes.get(target, 0) for g in groups)
    assisted = stored > 0 or all(g.is_whole(target) for g in groups)
    return Move(
        node=node,
        operators=operators,
        origin=desired[node],
        target=target,
        kind=MoveKind.CHECKPOINT_ASSISTED if assisted else MoveKind.DIRECT,
        bytes_to_move=lacking_bytes(groups, target),
        state_bytes=state_bytes(groups),
        why=why,
    )


def is_there(
    node: VirtualNode, operators: tuple[int, ...], desired: Mapping[VirtualNode, str], target: str, view: ClusterView
) -> bool:
    """Whether the virtual node is desired at `target` and `target` owns all its groups."""
    return desired.get(node) == target and all(g.owner == target for g in view.known(groups_of(node, operators)))


def state_bytes(groups: list[GroupSeen]) -> int:
    """Bytes stored by the owners."""
    return sum(g.stored_bytes.get(g.owner, 0) for g in groups)


def lacking_bytes(groups: list[GroupSeen], target: str) -> int:
    """Bytes missing on `target` for the whole state."""
    return sum(
        max(g.stored_bytes.get(g.owner, 0) - g.stored_bytes.get(target, 0), 0) for g in groups if not g.is_whole(target)
    )
