"""Proposes a plan: a pure function of a model and goals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rhino_core.errors import PreconditionError
from rhino_core.ids import VirtualNode
from rhino_core.planning.fill import place_leavers, spread_hot
from rhino_core.planning.goals import Goals
from rhino_core.planning.model import Model
from rhino_core.planning.repair import Repair
from rhino_core.planning.state import State

STEPS_PER_NODE = 2  # most steps of repair for each virtual node on a worker that is beyond a band


class Move(NamedTuple):
    """One virtual node gets another worker. `why`: the reason for this worker, for people."""

    node: VirtualNode
    origin: str
    target: str
    why: str


class Hot(NamedTuple):
    """A virtual node heavier than a worker's share. `worker`: where it is after the plan. `shares`: of its load."""

    node: VirtualNode
    worker: str
    load: float
    shares: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves in the order of the virtual nodes, and the virtual nodes that no move can balance."""

    moves: tuple[Move, ...]
    hot: tuple[Hot, ...] = ()


def propose(model: Model, goals: Goals) -> Plan:
    """The moves that reach the goals from the placement in the model.

    The model stays as it is, and has the weight of the goals. Raises NoSpaceError if a virtual node that must leave
    fits nowhere, UnknownError for unknown receivers, and PreconditionError if no worker may keep anything.
    """
    for worker in sorted(goals.receivers or ()):
        model.worker_of(worker)
    if not any(site.stays for site in model.sites):
        raise PreconditionError("no worker may keep virtual nodes: start more sidecars, or end a drain")
    state = State(model, goals)
    place_leavers(state)
    spread_hot(state)
    Repair(state, STEPS_PER_NODE * sum(len(state.members(worker)) for worker in state.overloaded())).run()
    return Plan(tuple(_move(state, node) for node in sorted(state.placed)), _hot(state))


def _move(state: State, node: int) -> Move:
    model, target = state.model, state.placed[node]
    origin = model.owner[node]
    holders = [holder for holder in state.may_hold(node) if holder != origin]
    if target in holders:
        why = f"one of {len(holders)} holders of a replica" if len(holders) > 1 else "the only other holder"
    elif state.goals.receivers is not None:
        why = "the least loaded of the workers that were asked for"
    elif not model.sites[origin].stays:
        why = "no holder of a replica is free: the least loaded worker with room"
    else:
        why = "no holder of a replica is below the mean: the least loaded worker with room"
    return Move(model.nodes[node], model.sites[origin].worker_id, model.sites[target].worker_id, why)


def _hot(state: State) -> tuple[Hot, ...]:
    model, column = state.model, state.column
    places = ((node, model.sites[state.place_of(node)].worker_id) for node in sorted(state.hot))
    return tuple(Hot(model.nodes[node], worker, column[node], column[node] / state.mean) for node, worker in places)
