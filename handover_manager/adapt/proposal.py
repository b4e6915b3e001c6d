"""A proposal of adaptation for a query's load, with the numbers for and against it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from handover_manager.adapt.budget import Left
from handover_manager.adapt.cool_downs import CoolDown
from handover_manager.adapt.goal import Goal, Verdict
from handover_manager.adapt.plans import best_plan, part_of
from handover_manager.adapt.policy import Policy
from handover_manager.adapt.windows import Window, forecast, imbalance, node_loads, usual_load, worker_loads
from handover_manager.plan.situation import Situation
from handover_manager.plan.work import Work
from rhino_core.errors import RhinoError
from rhino_core.ids import VirtualNode
from rhino_core.text import count
from rhino_model.decisions import Outcome
from rhino_model.handovers import Plan

COPY_COST = 0.1  # seconds that a second of copying costs: it takes disk and network from batches
BATCH_S = 1.0  # assumed for a query whose batches nobody has timed


@dataclass(frozen=True, slots=True)
class Situated:
    """A query to decide about: its windows, the basis of a plan, and the usual distance of its batches in seconds.

    `backlog`: why the newest window may be that of a backlog; empty: it is not. `predict` adds a prediction to a plan.
    `cooling`: recently moved virtual nodes. `left`: the rest of this hour's budget.
    """

    job: str
    windows: Sequence[Window]
    situation: Situation
    interval_s: float | None
    backlog: str
    predict: Callable[[Plan], Plan]
    cooling: Mapping[VirtualNode, CoolDown]
    left: Left


def judge(query: Situated, policy: Policy) -> Verdict:
    """Decides by load alone. The caller has ruled out all other activity."""
    if query.backlog:
        return Verdict(Outcome.CATCHING_UP, query.backlog)
    windows = query.windows
    if len(windows) < policy.broken:
        return Verdict(Outcome.TOO_FEW, f"{len(windows)} of {policy.broken} windows so far")
    goal = _goal(query, policy)
    reached = goal.reached(policy.broken)
    return goal.verdict(Outcome.BALANCED, reached) if reached else _judge_plan(query, policy, goal)


def _goal(query: Situated, policy: Policy) -> Goal:
    """The balance of task time, as the windows show it."""
    workers = [name for name, seen in query.situation.view.workers.items() if seen.eligible]
    windows = query.windows
    loads = forecast([window.load_s for window in windows], policy.broken, [window.error_s for window in windows])
    ratios = [imbalance(worker_loads(window.load_s, window.desired, workers)) for window in windows]
    return Goal(policy.band, loads, query.situation.desired, workers, ratios, usual_load(windows))


def _judge_plan(query: Situated, policy: Policy, goal: Goal) -> Verdict:
    base, moving_on = goal.verdict(Outcome.NOTHING_BETTER, ""), _moving_on(query, policy)
    pinned = frozenset(query.cooling.keys() - moving_on.keys())
    work = {node: Work(None, seconds) for node, seconds in goal.loads.items()}
    situation = dataclasses.replace(query.situation, work=work, pinned=pinned, barred=moving_on)
    try:
        plan = best_plan(query.job, situation, goal)
        wanted = () if plan is not None or not query.cooling else _wanted(query, situation, goal)
    except RhinoError as error:
        return dataclasses.replace(base, why=str(error))
    if plan is None:
        return _nothing_better(base, goal, wanted)
    found = _judged(query, policy, goal, plan)
    if found.outcome is not Outcome.WOULD_MOVE or query.left.covers(plan.bytes_to_move, len(plan.moves)):
        return found
    return _part(query, policy, goal, found)


def _judged(query: Situated, policy: Policy, goal: Goal, plan: Plan) -> Verdict:
    """Whether a plan saves more time than it costs, whatever the budget is."""
    plan, before, after = query.predict(plan), goal.expected(), goal.expected(plan)
    cost_s, gain_s = _cost_s(plan, query), _gain_s(max(before.values()), max(after.values()), query, policy)
    why = f"within {policy.horizon_s:.0f} s it would save {gain_s:.1f} s and cost {cost_s:.1f} s"
    base = goal.verdict(Outcome.NOT_WORTH, why)
    found = dataclasses.replace(base, planned=imbalance(after), gain_s=gain_s, cost_s=cost_s)
    if gain_s <= cost_s:
        return found
    what = f"the imbalance of time from {found.expected:.2f} to {found.planned:.2f}"
    why = f"{count(len(plan.moves), 'move')} would lower {what}"
    return dataclasses.replace(found, outcome=Outcome.WOULD_MOVE, why=why, plan=plan)


def _part(query: Situated, policy: Policy, goal: Goal, whole: Verdict) -> Verdict:
    """The part of a plan within the budget, if it is worth while."""
    assert whole.plan is not None
    left, moves, size = query.left, len(whole.plan.moves), whole.plan.bytes_to_move
    part = part_of(whole.plan, goal, left)
    found = _judged(query, policy, goal, part) if part is not None and goal.gains(part) else None
    if found is not None and found.outcome is Outcome.WOULD_MOVE:
        return dataclasses.replace(found, why=f"{found.why}; for all {moves} moves the hour has too little left")
    why = f"{moves} moves with {size} bytes: this hour has {left.moves} moves and {left.bytes} bytes left"
    return dataclasses.replace(whole, outcome=Outcome.OVER_BUDGET, why=why)


def _moving_on(query: Situated, policy: Policy) -> dict[VirtualNode, frozenset[str]]:
    """The virtual nodes free to move in spite of a recent move, and the workers closed to them."""
    now = node_loads(query.windows, policy.broken)
    cooling = query.cooling.items()
    return {node: frozenset(one.left) for node, one in cooling if node in now and one.may_move_on(now[node])}


def _wanted(query: Situated, situation: Situation, goal: Goal) -> tuple[VirtualNode, ...]:
    """The virtual nodes kept from a move by a recent one."""
    plan = best_plan(query.job, dataclasses.replace(situation, pinned=frozenset(), barred={}), goal)
    return () if plan is None else tuple(move.node for move in plan.moves if move.node in query.cooling)


def _nothing_better(base: Verdict, goal: Goal, wanted: Collection[VirtualNode]) -> Verdict:
    """No possible move is of use. `wanted`: virtual nodes with a useful move that have to stay."""
    if wanted:
        why = f"{count(len(wanted), 'virtual node')} would move, but moved a short time ago"
        return dataclasses.replace(base, outcome=Outcome.COOLING_DOWN, why=why)
    hot = f": {', '.join(base.hot)} alone exceed a worker's share" if base.hot else ""
    why = f"no plan lowers the peak of time by {goal.least_fall:.2f}{hot}"
    return dataclasses.replace(base, why=why)


def _gain_s(peak_s: float, after_s: float, query: Situated, policy: Policy) -> float:
    """The seconds saved in all batches of the horizon together.

    A worker's tasks may run side by side, so the saved part of the tasks is applied to the batch.
    """
    batch_s = median(window.batch_s for window in query.windows)
    saved_s = peak_s - after_s
    if batch_s > 0 and peak_s > 0:
        saved_s = min(saved_s, batch_s * saved_s / peak_s)
    interval_s = max(query.interval_s or BATCH_S, 1e-3)
    return max(saved_s, 0.0) * policy.horizon_s / interval_s


def _cost_s(plan: Plan, query: Situated) -> float:
    """The pause of the move and a part of the copying. Without former moves, the pause is taken to be one batch."""
    pause_s = plan.prediction.pause_s
    if pause_s is None:
        pause_s = query.interval_s or BATCH_S
    copying_s = [step.prediction.prepare_s or 0.0 for step in plan.steps]
    return pause_s + COPY_COST * sum(copying_s)
