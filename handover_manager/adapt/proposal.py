"""What adaptation would do about a query's load, with the numbers that speak for and against it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import median

from handover_manager.adapt.decisions import Outcome
from handover_manager.adapt.policy import Policy
from handover_manager.adapt.windows import Window, forecast, imbalance, worker_loads
from handover_manager.plan.intents import Rebalance, Weight
from handover_manager.plan.move import Move
from handover_manager.plan.planner import Plan, Request, make_plan
from handover_manager.plan.situation import Situation
from handover_manager.plan.work import Work
from rhino_core.errors import AlreadyThereError, RhinoError
from rhino_core.ids import VirtualNode

COPY_COST = 0.1  # seconds that a second of copying costs: it takes disk and network from batches
BATCH_S = 1.0  # assumed for a query whose batches nobody has timed


@dataclass(frozen=True, slots=True)
class Verdict:
    """`plan` is None unless the outcome is WOULD_MOVE. Numbers as in `Decision`."""

    outcome: Outcome
    why: str
    measured: float | None = None
    expected: float | None = None
    planned: float | None = None
    gain_s: float | None = None
    cost_s: float | None = None
    hot: tuple[str, ...] = ()
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Situated:
    """A query to decide about: its windows, the basis of a plan, and the usual distance of its batches in seconds.

    `usual_rows`: input rows of a usual batch; 0: unknown. `is_backlog`: the newest window may be one. `predict` adds a
    prediction to a plan. `cooling` tells whether a virtual node has to stay.
    """

    job: str
    windows: Sequence[Window]
    situation: Situation
    interval_s: float | None
    usual_rows: float
    is_backlog: bool
    predict: Callable[[Plan], Plan]
    cooling: Callable[[VirtualNode], bool]


def judge(query: Situated, policy: Policy) -> Verdict:
    """Decides by load alone. The caller has checked that nothing else is going on."""
    windows = query.windows
    if len(windows) < policy.windows:
        return Verdict(Outcome.TOO_FEW, f"{len(windows)} of {policy.windows} windows so far")
    if query.is_backlog:
        why = f"a batch had {windows[-1].rows} input rows, {query.usual_rows:.0f} are usual: maybe a backlog"
        return Verdict(Outcome.CATCHING_UP, why)
    return _judge_load(query, policy)


def _judge_load(query: Situated, policy: Policy) -> Verdict:
    workers = [name for name, seen in query.situation.view.workers.items() if seen.eligible]
    ratios = [imbalance(worker_loads(window.load_s, window.desired, workers)) for window in query.windows]
    expected = forecast([window.load_s for window in query.windows])
    loads = worker_loads(expected, query.situation.desired, workers)
    ratio, limit = imbalance(loads), 1 + policy.band
    hot = _hot(expected, loads)
    base = Verdict(Outcome.BALANCED, "", ratios[-1], ratio, hot=hot)
    over = sum(measured > limit for measured in ratios)
    if over < policy.broken or ratio <= limit:
        why = f"above {limit:.2f} in {over} of {len(ratios)} windows, {policy.broken} are needed"
        return dataclasses.replace(base, why=why if over < policy.broken else f"the forecast is within {limit:.2f}")
    return _judge_plan(query, policy, base, expected, workers)


def _judge_plan(
    query: Situated, policy: Policy, base: Verdict, expected: dict[VirtualNode, float], workers: Collection[str]
) -> Verdict:
    situation = dataclasses.replace(
        query.situation,
        work={n: Work(None, s) for n, s in expected.items()},
        pinned=frozenset(node for node in query.situation.nodes if query.cooling(node)),
    )
    try:
        plan = _rebalanced(query.job, situation)
        wanted = () if plan is not None or not situation.pinned else _wanted(query.job, situation)
    except RhinoError as error:
        return dataclasses.replace(base, outcome=Outcome.NOTHING_BETTER, why=str(error))
    if plan is None:
        return _nothing_better(base, wanted)
    moves = plan.moves
    plan = query.predict(dataclasses.replace(plan, steps=(moves,), intent="adaptation by time"))
    desired = {**situation.desired, **{move.node: move.target for move in moves}}
    before = worker_loads(expected, situation.desired, workers)
    after = worker_loads(expected, desired, workers)
    gain_s = _gain_s(max(before.values()), max(after.values()), query, policy)
    cost_s = _cost_s(plan, query)
    found = dataclasses.replace(base, planned=imbalance(after), gain_s=gain_s, cost_s=cost_s, plan=plan)
    if gain_s <= cost_s:
        why = f"within {policy.horizon_s:.0f} s it would save {gain_s:.1f} s and cost {cost_s:.1f} s"
        return dataclasses.replace(found, outcome=Outcome.NOT_WORTH, why=why, plan=None)
    why = f"{_count(moves)} would lower the imbalance from {imbalance(before):.2f} to {imbalance(after):.2f}"
    return dataclasses.replace(found, outcome=Outcome.WOULD_MOVE, why=why)


def _rebalanced(job: str, situation: Situation) -> Plan | None:
    """None: no move is of use. Raises RhinoError for other reasons."""
    try:
        return make_plan(Request(job, intent=Rebalance(Weight.TIME)), job, situation)
    except AlreadyThereError:
        return None


def _wanted(job: str, situation: Situation) -> tuple[VirtualNode, ...]:
    """The pinned virtual nodes that would move if they might."""
    plan = _rebalanced(job, dataclasses.replace(situation, pinned=frozenset()))
    return () if plan is None else tuple(move.node for move in plan.moves if move.node in situation.pinned)


def _nothing_better(base: Verdict, wanted: Collection[VirtualNode]) -> Verdict:
    """Nothing that may move is of use. `wanted`: what would be, but has to stay."""
    if wanted:
        which = f"{len(wanted)} virtual node{'s' if len(wanted) > 1 else ''}"
        why = f"{which} would move, but moved a short time ago"
        return dataclasses.replace(base, outcome=Outcome.COOLING_DOWN, why=why)
    hot = f": {', '.join(base.hot)} alone exceed a worker's share" if base.hot else ""
    return dataclasses.replace(base, outcome=Outcome.NOTHING_BETTER, why=f"no move lowers the peak{hot}")


def _gain_s(peak_s: float, after_s: float, query: Situated, policy: Policy) -> float:
    """Seconds that all batches of the horizon together become shorter.

    A worker's tasks may run side by side, so the part that is saved of the tasks is applied to the batch.
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
    copying_s = [step.prepare_s or 0.0 for step in plan.prediction.steps]
    return pause_s + COPY_COST * sum(copying_s)


def _hot(load_s: dict[VirtualNode, float], loads: dict[str, float]) -> tuple[str, ...]:
    """Virtual nodes that alone have more than a worker's share. Their keys cannot be split."""
    share = sum(loads.values()) / len(loads) if loads else 0.0
    return tuple(node.name for node, seconds in sorted(load_s.items()) if seconds > share > 0)


def _count(moves: Sequence[Move]) -> str:
    return f"{len(moves)} move{'s' if len(moves) > 1 else ''}"
