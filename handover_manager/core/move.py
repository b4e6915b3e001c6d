"""One virtual node from a worker to another, with what it costs."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from handover_manager.core.view import ClusterView, GroupSeen, groups_of
from rhino.errors import PreconditionError
from rhino.ids import GroupId, VirtualNode


class MoveKind(enum.Enum):
    """DIRECT: the target holds nothing yet. CHECKPOINT_ASSISTED: it holds a replica or part of one, and gets what it
    lacks (Madsen & Zhou, section 4)."""

    DIRECT = "direct"
    CHECKPOINT_ASSISTED = "checkpoint_assisted"


@dataclass(frozen=True, slots=True)
class Move:
    """One virtual node from `origin` to `target` (worker ids). `why`: this target, for people."""

    node: VirtualNode
    operators: tuple[int, ...]
    origin: str
    target: str
    kind: MoveKind
    bytes_to_move: int  # what the target lacks
    state_bytes: int
    why: str = ""

    @property
    def groups(self) -> tuple[GroupId, ...]:
        return groups_of(self.node, self.operators)


def make_move(
    node: VirtualNode,
    operators: tuple[int, ...],
    desired: Mapping[VirtualNode, str],
    target: str,
    view: ClusterView,
    why: str,
) -> Move:
    """Raises PreconditionError while the virtual node has no state."""
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


def state_bytes(groups: list[GroupSeen]) -> int:
    """As the owners store it."""
    return sum(g.stored_bytes.get(g.owner, 0) for g in groups)


def lacking_bytes(groups: list[GroupSeen], target: str) -> int:
    """What `target` would have to receive before it holds all of it."""
    return sum(
        max(g.stored_bytes.get(g.owner, 0) - g.stored_bytes.get(target, 0), 0) for g in groups if not g.is_whole(target)
    )
