"""The candidate plans of adaptation for a goal."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator, Sequence

from handover_manager.adapt.budget import Left
from handover_manager.adapt.goal import KEPT_PART, Goal
from handover_manager.plan.planner import make_plan
from handover_manager.plan.situation import Situation
from handover_manager.plan.work import Work
from rhino_core.errors import AlreadyThereError
from rhino_core.ids import VirtualNode
from rhino_core.planning.goals import Weight
from rhino_model.handovers import Move, Plan, PlannedStep
from rhino_model.intents import Adapt, Request


def best_plan(job: str, situation: Situation, goals: Sequence[Goal], goal: Goal) -> Plan | None:
    """The best plan for one goal; None: none is of use.

    A plan for the most important goal breaks the bands of others only if it cannot do without. Raises RhinoError if
    nothing can be planned.
    """
    for intent in _intents(goals, goal):
        try:
            plan = make_plan(Request(job, intent=intent), job, situation)
        except AlreadyThereError:
            continue
        if not goal.leads or goal.gains(plan):
            return plan
    return None


def work_of(goals: Sequence[Goal]) -> dict[VirtualNode, Work]:
    """The expected rows and task time of each virtual node: the basis of plans. Without rows if these are not known."""
    loads = {goal.weight: goal.loads for goal in goals}
    rows = loads.get(Weight.ROWS, {})
    times_s = loads[Weight.TIME].items()
    return {node: Work(round(rows[node]) if node in rows else None, seconds) for node, seconds in times_s}


def _intents(goals: Sequence[Goal], goal: Goal) -> Iterator[Adapt]:
    """Moves for one goal, the best kind of plan first. One for a lesser goal leaves room in the bands before it."""
    rank = goals.index(goal)
    kept = [(other.weight, other.band * (KEPT_PART if at < rank else 1.0)) for at, other in enumerate(goals)]
    del kept[rank]
    yield Adapt(goal.weight, goal.aim, tuple(kept))
    if goal.leads and kept:
        yield Adapt(goal.weight, goal.aim, ())


def part_of(plan: Plan, goal: Goal, left: Left) -> Plan | None:
    """The moves of a plan that lower the peak first, as many as the budget allows; None: not one."""
    loads, waiting = goal.expected(), dict[str, list[Move]]()
    for move in sorted(plan.moves, key=lambda move: (goal.loads.get(move.node, 0.0), move.node)):
        waiting.setdefault(move.origin, []).append(move)
    heap = [(-loads.get(worker, 0.0), worker) for worker in waiting]
    heapq.heapify(heap)
    chosen, size = set[VirtualNode](), 0
    while heap and len(chosen) < left.moves:
        known, worker = heapq.heappop(heap)
        if -known != loads.get(worker, 0.0):  # it has got or lost virtual nodes since
            heapq.heappush(heap, (-loads[worker], worker))
            continue
        move = waiting[worker].pop()
        if size + move.bytes_to_move <= left.bytes:
            chosen.add(move.node)
            size += move.bytes_to_move
            load = goal.loads.get(move.node, 0.0)
            loads[worker] = loads.get(worker, 0.0) - load
            loads[move.target] = loads.get(move.target, 0.0) + load
        if waiting[worker]:
            heapq.heappush(heap, (-loads.get(worker, 0.0), worker))
    steps = (PlannedStep(tuple(move for move in step.moves if move.node in chosen)) for step in plan.steps)
    return dataclasses.replace(plan, steps=tuple(step for step in steps if step.moves)) if chosen else None
