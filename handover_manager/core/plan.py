"""Plan of a handover: checks, moves and bytes (Rhino 4.1, step 1); changes nothing."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from handover_manager.core.view import ClusterView, GroupSeen, groups_of
from rhino.errors import (
    AlreadyThereError,
    ConflictError,
    InvalidRequestError,
    NoSpaceError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)
from rhino.ids import DiskState, GroupId, VirtualNode

ALL_AT_ONCE = "all_at_once"  # Megaphone 3.3: every virtual node in one step
DEFAULT_DEADLINE_S = 300.0
_NODE = re.compile(r"([0-9]{1,9})/([0-9]{1,9})\Z")


class MoveKind(enum.Enum):
    """DIRECT: the target holds nothing yet. CHECKPOINT_ASSISTED: it holds a replica (Madsen & Zhou, section 4)."""

    DIRECT = "direct"
    CHECKPOINT_ASSISTED = "checkpoint_assisted"


@dataclass(frozen=True, slots=True)
class Request:
    """As the user asks. `job` is an id or a unique name; `virtual_nodes` are "<task group>/<partition>"."""

    job: str
    virtual_nodes: tuple[str, ...]
    target: str
    deadline_s: float = 0.0  # 0: DEFAULT_DEADLINE_S


@dataclass(frozen=True, slots=True)
class Move:
    """One virtual node from `origin` to `target` (worker ids)."""

    node: VirtualNode
    operators: tuple[int, ...]
    origin: str
    target: str
    kind: MoveKind
    bytes_to_move: int  # what the target lacks
    state_bytes: int

    @property
    def groups(self) -> tuple[GroupId, ...]:
        return groups_of(self.node, self.operators)


@dataclass(frozen=True, slots=True)
class Plan:
    job: str
    moves: tuple[Move, ...]
    strategy: str = ALL_AT_ONCE

    @property
    def target(self) -> str:
        return self.moves[0].target

    @property
    def bytes_to_move(self) -> int:
        return sum(move.bytes_to_move for move in self.moves)

    @property
    def groups(self) -> tuple[GroupId, ...]:
        return tuple(group for move in self.moves for group in move.groups)


def deadline_of(request: Request) -> float:
    """Seconds for the whole handover; raises InvalidRequestError unless 0 (the default) or positive."""
    if not math.isfinite(request.deadline_s) or request.deadline_s < 0:
        raise InvalidRequestError(f"deadline {request.deadline_s} s: must be positive, or 0 for {DEFAULT_DEADLINE_S} s")
    return request.deadline_s or DEFAULT_DEADLINE_S


def parse_nodes(job: str, names: tuple[str, ...]) -> tuple[VirtualNode, ...]:
    """Raises InvalidRequestError for no name, a malformed one or one given twice."""
    if not names:
        raise InvalidRequestError('no virtual node given: write them as "<task group>/<partition>", e.g. "0/5"')
    nodes = []
    for name in names:
        match = _NODE.match(name)
        if match is None:
            raise InvalidRequestError(f'virtual node {name!r}: write it as "<task group>/<partition>", e.g. "0/5"')
        nodes.append(VirtualNode(job, int(match[1]), int(match[2])))
    doubled = sorted({n.name for n in nodes if nodes.count(n) > 1})
    if doubled:
        raise InvalidRequestError(f"virtual nodes given twice: {', '.join(doubled)}")
    return tuple(nodes)


def make_plan(
    request: Request,
    job: str,
    virtual_nodes: Mapping[VirtualNode, tuple[int, ...]],
    desired: Mapping[VirtualNode, str],
    running: Mapping[VirtualNode, str],
    view: ClusterView,
) -> Plan:
    """The moves that `request` needs.

    `virtual_nodes`: the job's virtual nodes with their operators; `desired`: where they are meant to be; `running`:
    virtual nodes under a running handover with its id. Raises the errors documented at HandoverRequest.
    """
    deadline_of(request)
    nodes = parse_nodes(job, request.virtual_nodes)
    _check_known(nodes, virtual_nodes, job)
    _check_target(request.target, view)
    _check_free(nodes, running)
    _check_elsewhere(nodes, desired, request.target)
    plan = Plan(job, tuple(_move(n, virtual_nodes[n], desired, request.target, view) for n in nodes))
    free_bytes = view.workers[request.target].free_bytes
    if plan.bytes_to_move > free_bytes:
        raise NoSpaceError(
            f"worker {request.target} has {free_bytes} bytes free, the handover needs {plan.bytes_to_move}: "
            "free space there or choose another target"
        )
    return plan


def _check_known(nodes: tuple[VirtualNode, ...], known: Mapping[VirtualNode, tuple[int, ...]], job: str) -> None:
    unknown = [n.name for n in nodes if n not in known]
    if unknown:
        have = ", ".join(n.name for n in sorted(known)[:20]) or "none yet"
        raise UnknownError(f"virtual nodes {', '.join(unknown)} of job {job}: unknown; it has {have}")


def _check_target(target: str, view: ClusterView) -> None:
    seen = view.workers.get(target)
    if seen is None:
        raise UnknownError(f"worker {target!r}: unknown; known are {', '.join(sorted(view.workers)) or 'none'}")
    if not seen.live:
        raise UnavailableError(f"worker {target} is not live: start its sidecar or choose another target")
    if seen.disk is not DiskState.OK:  # also with all copies there: its executors could not commit
        kind = NoSpaceError if seen.disk is DiskState.FULL else PreconditionError
        raise kind(
            f"worker {target} takes no files, its disk is {seen.disk.value} ({seen.disk_message}): choose another"
        )


def _check_free(nodes: tuple[VirtualNode, ...], running: Mapping[VirtualNode, str]) -> None:
    busy = [f"{n.name} (handover {running[n]})" for n in nodes if n in running]
    if busy:
        raise ConflictError(f"virtual nodes under a running handover: {', '.join(busy)}; wait for its end or cancel it")


def _check_elsewhere(nodes: tuple[VirtualNode, ...], desired: Mapping[VirtualNode, str], target: str) -> None:
    there = [n.name for n in nodes if desired.get(n) == target]
    if there:
        raise AlreadyThereError(f"virtual nodes {', '.join(there)} are on worker {target} already")


def _move(
    node: VirtualNode,
    operators: tuple[int, ...],
    desired: Mapping[VirtualNode, str],
    target: str,
    view: ClusterView,
) -> Move:
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
        bytes_to_move=sum(_lacking_bytes(g, target) for g in groups),
        state_bytes=sum(g.stored_bytes.get(g.owner, 0) for g in groups),
    )


def _lacking_bytes(group: GroupSeen, target: str) -> int:
    if group.is_whole(target):
        return 0
    return max(group.stored_bytes.get(group.owner, 0) - group.stored_bytes.get(target, 0), 0)
