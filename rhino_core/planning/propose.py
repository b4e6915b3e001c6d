"""Proposes a plan, scores it and explains its moves: pure functions of a model and goals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rhino_core.planning import quotas
from rhino_core.planning.fill import place_leavers, spread_hot
from rhino_core.planning.goals import Goals, Weight
from rhino_core.planning.model import NOWHERE, Model
from rhino_core.planning.plan import Bound, Certificate, Plan
from rhino_core.planning.repair import Repair
from rhino_core.planning.shares import check
from rhino_core.planning.state import State

STEPS_PER_NODE = 2  # most steps of repair for each virtual node on a worker that is beyond a band


class Score(NamedTuple):
    """How good a placement is, the most important first. Less is better, so scores compare as tuples.

    `homeless`: virtual nodes on no worker, or on one that must be emptied. `excess`: for each weight the excess of the
    highest load over its mean, beyond the band.
    """

    homeless: int
    excess: tuple[float, ...]
    cross_zone_bytes: float
    copied_bytes: float
    moves: int


class Reason(NamedTuple):
    """The reason for a virtual node's move to its target, for people, and the figures behind it.

    `origin_load`, `target_load`: loads over the share before the plan. `copied_bytes`: missing at the target.
    """

    why: str
    origin_load: float
    target_load: float
    copied_bytes: float


def propose(model: Model, goals: Goals) -> Plan:
    """The moves that reach the goals from the placement in the model, with a certificate.

    The model stays as it is. Raises NoSpaceError if a virtual node that must leave fits nowhere, UnknownError for
    unknown receivers, and PreconditionError if nothing can be placed or a weight is unknown.
    """
    check(model, goals)
    state = State(model, goals)
    place_leavers(state)
    spread_hot(state)
    equal = None if state.pinned or goals.barred else quotas.equal_quotas(state)
    loosest = None if equal is None else (equal.low + 1) * equal.unit
    if equal is not None:
        quotas.limit_to(state, equal)
    Repair(state, STEPS_PER_NODE * sum(len(state.members(worker)) for worker in state.overloaded())).run()
    if equal is not None:
        quotas.cheapest(state, equal)
    return Plan(model, state.placed, _certificate(state, loosest), _notes(state))


def score(model: Model, placed: Mapping[int, int], goals: Goals) -> Score:
    """The score of the placement after the moves `placed`; without any, of the placement in the model."""
    check(model, goals)
    state = State(model, goals)
    shares = state.shares
    for node, worker in placed.items():
        state.put(node, worker)
    crossing = copied = 0.0
    for node, worker in placed.items():
        lacking = state.lacks(node, worker)
        copied += lacking
        crossing += lacking if state.crosses(node, worker) else 0.0
    stays = {worker for worker, site in enumerate(model.sites) if site is not None and site.stays}
    homeless = sum(state.place_of(node) not in stays for node in model.node_index.values())
    excess = tuple(
        max(0.0, _peak(state, position) / share.mean - 1 - goals.bands[share.weight]) if share.mean else 0.0
        for position, share in enumerate(shares)
    )
    return Score(homeless, excess, crossing, copied, len(state.placed))


def explain(plan: Plan, goals: Goals, node: int) -> Reason:
    """Why the virtual node (by index) moves. Raises KeyError if it does not."""
    state = State(plan.model, goals)
    return _reason(state, node, plan.placed[node])


def explain_all(plan: Plan, goals: Goals) -> dict[int, Reason]:
    """Why each virtual node moves."""
    state = State(plan.model, goals)
    return {node: _reason(state, node, target) for node, target in plan.placed.items()}


def _reason(state: State, node: int, target: int) -> Reason:
    origin = state.model.owner[node]
    holders = [holder for holder in state.may_hold(node) if holder != origin]
    site = state.model.sites[origin] if origin != NOWHERE else None
    if target in holders:
        why = f"one of {len(holders)} holders of a replica" if len(holders) > 1 else "the only other holder"
    elif state.goals.receivers is not None:
        why = "the least loaded of the workers that were asked for"
    elif site is None or not site.stays:
        why = "no holder of a replica is free: the least loaded worker with room"
    else:
        why = "no holder of a replica is below the mean: the least loaded worker with room"
    here = 0.0 if origin == NOWHERE else state.height(origin)
    return Reason(why, here, state.height(target), state.lacks(node, target))


def _peak(state: State, position: int) -> float:
    """The highest load per capacity among the workers that share the load."""
    sites, loads = state.model.sites, state.loads[position]
    workers = state.shares[position].workers
    return max(loads[worker] / site.capacity for worker in workers if (site := sites[worker]) is not None)


def _certificate(state: State, loosest: float | None) -> Certificate:
    bounds = {
        share.weight: Bound(_peak(state, position), share.mean, share.lower)
        for position, share in enumerate(state.shares)
    }
    copied = state.copied()
    hot = tuple(node for index in sorted(state.hot) if (node := state.model.nodes[index]) is not None)
    return Certificate(bounds, copied, _least_copied(state, loosest), hot)


def _least_copied(state: State, loosest: float | None) -> float:
    """Bytes copied by every plan within the bands: each worker sheds its excess, the cheapest virtual nodes first."""
    model = state.model
    total = state.least_copied_of(model.homeless)
    for worker, site in enumerate(model.sites):
        if site is None:
            continue
        if not site.stays:
            total += state.least_copied_of(model.owned[worker])
            continue
        sheds = [0.0]
        for position, weight in enumerate(state.weights):
            limit = state.limits[position][worker] if loosest is None else loosest
            excess = model.totals[weight][worker] - limit
            if state.goals.bands[weight] < math.inf and excess > 1e-9 * limit:
                sheds.append(_shed(state, model.owned[worker], position, excess))
        total += max(sheds)
    return total


def _shed(state: State, nodes: Iterable[int], position: int, excess: float) -> float:
    """The least bytes to shed this weight, as if virtual nodes could be cut (a fractional knapsack)."""
    column = state.columns[position]
    offers = sorted((state.least_lacking(node) / column[node], column[node]) for node in nodes if column[node] > 0)
    total = 0.0
    for price, weight in offers:
        total += price * min(weight, excess)
        excess -= weight
        if excess <= 0:
            break
    return total


def _notes(state: State) -> tuple[str, ...]:
    notes = []
    for share in state.shares:
        if share.weight is Weight.COUNT or state.goals.bands[share.weight] == math.inf:
            continue
        for index in sorted(share.hot):
            node = state.model.nodes[index]
            if node is not None:
                factor = state.columns[state.shares.index(share)][index] / share.mean
                notes.append(
                    f"virtual node {node.name} of job {node.job} has {factor:.2f} x a worker's share of "
                    f"{share.weight.value}: keys are not split, so the others leave its worker"
                )
    labelled = [site for site in state.model.sites if site is not None and site.zone]
    bare = [site.worker_id for site in state.model.sites if site is not None and not site.zone]
    if labelled and bare:
        notes.append(f"workers {', '.join(sorted(bare)[:20])} have no zone, others have: copies to them count as near")
    return tuple(notes)
