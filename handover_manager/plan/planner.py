"""The plan of a handover: checks, moves and steps (Rhino 4.1, step 1). Changes nothing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from handover_manager.plan.move import is_there, make_move
from handover_manager.plan.situation import Situation
from handover_manager.plan.targets import choose_targets
from handover_manager.view import ClusterView
from rhino_core.errors import (
    AlreadyThereError,
    ConflictError,
    InvalidRequestError,
    NoSpaceError,
    PreconditionError,
    UnavailableError,
    UnknownError,
)
from rhino_core.ids import DiskState, VirtualNode
from rhino_model.handovers import HotNode, Move, Plan, PlannedStep
from rhino_model.intents import Drain, Intent, Request
from rhino_model.strategy import Kind, Strategy

DEFAULT_DEADLINE_S = 300.0
_NODE = re.compile(r"([0-9]{1,9})/([0-9]{1,9})\Z")


def deadline_of(request: Request) -> float:
    """Deadline of each step in seconds. Raises InvalidRequestError unless it is 0 (the default) or positive."""
    if not math.isfinite(request.deadline_s) or request.deadline_s < 0:
        raise InvalidRequestError(f"deadline {request.deadline_s} s: must be positive, or 0 for {DEFAULT_DEADLINE_S} s")
    return request.deadline_s or DEFAULT_DEADLINE_S


def parse_nodes(job: str, names: tuple[str, ...]) -> tuple[VirtualNode, ...]:
    """The named virtual nodes. Raises InvalidRequestError for no name, a malformed name or a duplicate."""
    if not names:
        raise InvalidRequestError('no virtual node given: write them as "<task group>/<partition>", e.g. "0/5"')
    nodes = []
    for name in names:
        match = _NODE.match(name)
        if match is None:
            raise InvalidRequestError(f'virtual node {name!r}: write it as "<task group>/<partition>", e.g. "0/5"')
        nodes.append(VirtualNode(job, int(match[1]), int(match[2])))
    doubled = sorted(node.name for node, count in Counter(nodes).items() if count > 1)
    if doubled:
        raise InvalidRequestError(f"virtual nodes given twice: {', '.join(doubled)}")
    return tuple(nodes)


def make_plan(request: Request, job: str, situation: Situation) -> Plan:
    """The moves for `request`, in the steps of its strategy, without a prediction.

    `job` is the id of the request's job, "" for all. Raises the errors documented at HandoverRequest.
    """
    deadline_of(request)
    hot: tuple[HotNode, ...] = ()
    if request.intent is None:
        moves, what = _moves_there(request, job, situation), f"move to {request.target}"
    else:
        if request.virtual_nodes or request.target:
            raise InvalidRequestError(f"{request.intent} chooses virtual nodes and targets itself: name neither")
        (moves, hot), what = _moves_of_intent(request.intent, situation), str(request.intent)
    _check_room(moves, situation.view)
    parts = steps_of(moves, request.strategy)
    if isinstance(request.intent, Drain) and request.strategy.kind is Kind.ALL_AT_ONCE:
        parts = _at_replicas_first(moves)
    return Plan(tuple(map(PlannedStep, parts)), request.strategy, what, hot=hot)


def _at_replicas_first(moves: list[Move]) -> tuple[tuple[Move, ...], ...]:
    """A worker that may leave soon gives up at once what needs no copy."""
    there = tuple(move for move in moves if not move.bytes_to_move)
    return tuple(filter(None, (there, tuple(move for move in moves if move.bytes_to_move))))


def _moves_there(request: Request, job: str, situation: Situation) -> list[Move]:
    nodes = parse_nodes(job, request.virtual_nodes)
    view, desired, target = situation.view, situation.desired, request.target
    _check_known(nodes, situation.nodes, job)
    check_target(target, view)
    _check_free(nodes, situation.running)
    there = [n.name for n in nodes if is_there(n, situation.nodes[n], desired, target, view)]
    if there:
        raise AlreadyThereError(f"virtual nodes {', '.join(there)} are on worker {target} already")
    return [make_move(n, situation.nodes[n], desired, target, view, "as asked for") for n in nodes]


def _moves_of_intent(intent: Intent, situation: Situation) -> tuple[list[Move], tuple[HotNode, ...]]:
    if isinstance(intent, Drain) and situation.running:  # a repeated drain takes only what is left
        left = {node: found for node, found in situation.nodes.items() if node not in situation.running}
        situation = replace(situation, nodes=left)
    chosen, hot = choose_targets(intent, situation)
    if not chosen:
        raise AlreadyThereError("; ".join([f"{intent}: nothing has to move", *map(str, hot)]))
    _check_free(tuple(chosen), situation.running)
    moves = [
        make_move(node, situation.nodes[node], situation.desired, choice.worker, situation.view, choice.why)
        for node, choice in sorted(chosen.items())
    ]
    # Moves without copies come first, while the others are copied.
    return sorted(moves, key=lambda move: move.bytes_to_move), hot


def _check_known(nodes: tuple[VirtualNode, ...], known: Mapping[VirtualNode, tuple[int, ...]], job: str) -> None:
    unknown = [n.name for n in nodes if n not in known]
    if unknown:
        have = ", ".join(n.name for n in sorted(known)[:20]) or "none yet"
        raise UnknownError(f"virtual nodes {', '.join(unknown)} of job {job}: unknown; it has {have}")


def check_target(target: str, view: ClusterView) -> None:
    """Refuses a `target` unable to receive virtual nodes.

    Raises UnknownError, UnavailableError, NoSpaceError or PreconditionError otherwise.
    """
    seen = view.workers.get(target)
    if seen is None:
        raise UnknownError(f"worker {target!r}: unknown; known are {', '.join(sorted(view.workers)) or 'none'}")
    if not seen.live:
        raise UnavailableError(f"worker {target} is not live: start its sidecar or choose another target")
    if seen.disk is not DiskState.OK:  # even if it has all copies: its executors could not commit
        kind = NoSpaceError if seen.disk is DiskState.FULL else PreconditionError
        raise kind(
            f"worker {target} takes no files, its disk is {seen.disk.value} ({seen.disk_message}): choose another"
        )
    if seen.draining:
        raise PreconditionError(
            f"worker {target} is being drained: choose another, or end that with `rhino drain {target} --cancel`"
        )


def _check_free(nodes: tuple[VirtualNode, ...], running: Mapping[VirtualNode, str]) -> None:
    busy = [f"{n.name} (handover {running[n]})" for n in nodes if n in running]
    if busy:
        raise ConflictError(f"virtual nodes under a running handover: {', '.join(busy)}; wait for its end or cancel it")


def _check_room(moves: list[Move], view: ClusterView) -> None:
    needed = Counter[str]()
    for move in moves:
        needed[move.target] += move.bytes_to_move
    for target, size in sorted(needed.items()):
        free_bytes = view.workers[target].free_bytes
        if size > free_bytes:
            raise NoSpaceError(
                f"worker {target} has {free_bytes} bytes free, the handover needs {size}: "
                "free space there or choose another target"
            )


def steps_of(moves: Sequence[Move], strategy: Strategy) -> tuple[tuple[Move, ...], ...]:
    """The moves in steps. Every move is in exactly one step."""
    if strategy.kind is Kind.MATCHED:
        return matched(moves)
    size = {Kind.ALL_AT_ONCE: max(len(moves), 1), Kind.FLUID: 1}.get(strategy.kind, strategy.batch_size)
    return tuple(tuple(moves[i : i + size]) for i in range(0, len(moves), size))


def matched(moves: Sequence[Move]) -> tuple[tuple[Move, ...], ...]:
    """Steps in which no worker sends twice or receives twice. Each move is in the first step with room for it."""
    steps: list[list[Move]] = []
    sending, receiving = Counter[str](), Counter[str]()  # a bit for each step in which the worker does so
    for move in moves:
        busy = sending[move.origin] | receiving[move.target]
        free = ~busy & (busy + 1)  # the lowest bit that is not set
        step = free.bit_length() - 1
        if step == len(steps):
            steps.append([])
        steps[step].append(move)
        sending[move.origin] |= free
        receiving[move.target] |= free
    return tuple(map(tuple, steps))
