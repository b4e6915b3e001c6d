"""The plan of adaptation for its goal."""

from __future__ import annotations

import dataclasses
import heapq

from handover_manager.adapt.budget import Left
from handover_manager.adapt.goal import Goal
from handover_manager.plan.planner import make_plan
from handover_manager.plan.situation import Situation
from rhino_core.errors import AlreadyThereError
from rhino_core.ids import VirtualNode
from rhino_model.handovers import Move, Plan, PlannedStep
from rhino_model.intents import Adapt, Request


def best_plan(job: str, situation: Situation, goal: Goal) -> Plan | None:
    """The best plan for the goal; None: none is of use. Raises RhinoError if nothing can be planned."""
    try:
        plan = make_plan(Request(job, intent=Adapt(goal.aim)), job, situation)
    except AlreadyThereError:
        return None
    return plan if goal.gains(plan) else None


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
