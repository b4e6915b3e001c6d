"""`rhino plan` and `rhino handover`: plan, start and follow a handover. Data on stdout, progress on stderr."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.columns import Row, show_columns
from rhino.cli.options import CallOptions
from rhino.cli.output import console, say, say_json
from rhino.client.handover_client import HandoverClient
from rhino.client.overview import query_names
from rhino_core.errors import UnavailableError, UnknownError
from rhino_core.rpc.channel import CALL_S_MAX
from rhino_core.text import count
from rhino_model.handovers import Handover, Phase, Plan, PlannedStep, Prediction, Step
from rhino_model.intents import Request


def run_plan(request: Request, call: CallOptions) -> int:
    """Shows the plan and returns the exit code."""
    with HandoverClient(call.manager) as client:
        plan = client.plan(
            request.job, request.virtual_nodes, request.target, intent=request.intent, strategy=request.strategy
        )
        names = {} if call.as_json else query_names(client.jobs())
    say_json(plan) if call.as_json else show_plan(plan, names)
    return exit_codes.OK


def run_handover(request: Request, call: CallOptions, *, deadline_s: float, wait: bool) -> int:
    """Starts a handover and, with `wait`, follows it. Returns the exit code."""
    with HandoverClient(call.manager) as client:
        handover = client.start(
            request.job,
            request.virtual_nodes,
            request.target,
            intent=request.intent,
            strategy=request.strategy,
            deadline_s=deadline_s,
        )
        say(f"handover {handover.handover_id} started", error=True)
        if wait:
            handover = _follow(client, handover.handover_id, CALL_S_MAX)
    _show_handover(handover, call)
    return exit_codes.FAILED if wait and handover.phase is not Phase.CONFIRMED else exit_codes.OK


def run_watch(handover_id: str, call: CallOptions, *, timeout_s: float) -> int:
    """Follows a handover until it has ended. Returns the exit code."""
    with HandoverClient(call.manager) as client:
        handover = _follow(client, handover_id, timeout_s)
    _show_handover(handover, call)
    return exit_codes.OK if handover.phase is Phase.CONFIRMED else exit_codes.FAILED


def run_cancel(handover_id: str, call: CallOptions) -> int:
    """Cancels the steps that are not marked yet. Returns the exit code."""
    with HandoverClient(call.manager) as client:
        handover = client.cancel(handover_id)
    _show_handover(handover, call)
    return exit_codes.OK


def run_list(job: str, call: CallOptions, *, running: bool) -> int:
    """Lists handovers and returns the exit code."""
    with HandoverClient(call.manager) as client:
        handovers = [one for one in client.list(job) if not (running and one.phase.ended)]
        names = {} if call.as_json else query_names(client.jobs())
    if call.as_json:
        say_json(handovers)
        return exit_codes.OK
    head = ("handover", "started", "query", "intent", "moves", "by", "state", "result")
    show_columns(console(), head, (_listed(one, names) for one in handovers))
    return exit_codes.OK


def _listed(handover: Handover, names: Mapping[str, str]) -> Row:
    jobs = sorted({names.get(move.job, move.job) for move in handover.plan.moves})
    what = (",".join(jobs), handover.plan.intent, str(len(handover.plan.moves)), handover.by)
    return handover.handover_id, moment(handover.started_ms), *what, _progress(handover), _result(handover)


def run_show(handover_id: str, call: CallOptions) -> int:
    """Shows the steps and moves of one handover. Returns the exit code."""
    with HandoverClient(call.manager) as client:
        handover = next((one for one in client.list() if one.handover_id == handover_id), None)
        names = query_names(client.jobs())
    if handover is None:
        raise UnknownError(f"handover {handover_id!r} is not known; `rhino handover list` has those that are")
    if call.as_json:
        say_json(handover)
        return exit_codes.OK
    by = f", asked for by {handover.by}" if handover.by else ""
    state = f"{_progress(handover)} {_result(handover)}".rstrip()
    say(f"handover {handover.handover_id} ({handover.plan.intent}{by}): {state}")
    steps = zip(handover.steps, handover.plan.steps, strict=False)
    rows = [_step(number, step, planned) for number, (step, planned) in enumerate(steps, 1)]
    show_columns(console(), ("step", "state", "marked", "ended", "batch", "moved", "virtual nodes", "reason"), rows)
    say("")
    _show_moves(handover.plan, names)
    return exit_codes.OK


def _step(number: int, step: Step, planned: PlannedStep) -> Row:
    batch = str(step.confirmed_batch_id) if step.confirmed_batch_id >= 0 else ""
    times = (moment(step.marked_ms), moment(step.finished_ms))
    moved = decimal(step.bytes_moved)
    return str(number), step.phase.value, *times, batch, moved, ",".join(planned.virtual_nodes), step.reason


def moment(wall_ms: int) -> str:
    """Local time as text; empty for 0: the moment has not come."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_ms / 1000)) if wall_ms else ""


def _result(handover: Handover) -> str:
    return handover.reason or _duration_text(handover)


def _show_handover(handover: Handover, call: CallOptions) -> None:
    if call.as_json:
        say_json(handover)
    else:
        say(f"{handover.handover_id} {handover.phase.value} {handover.reason or _duration_text(handover)}".rstrip())


def _follow(client: HandoverClient, handover_id: str, timeout_s: float) -> Handover:
    """Prints progress until the handover has ended, and returns its final status."""
    last, printed = None, ""
    for last in client.watch(handover_id, timeout_s=timeout_s):
        text = _progress(last)
        if text != printed:
            say(text, error=True)
        printed = text
        if last.phase.ended:
            return last
    raise UnavailableError(f"handover {handover_id}: the manager ended the stream before the handover had ended")


def _progress(handover: Handover) -> str:
    left = f", waiting for {', '.join(handover.waiting_for)}" if handover.waiting_for else ""
    steps = f"step {handover.step} of {len(handover.steps)}: " if len(handover.steps) > 1 else ""
    return f"{steps}{handover.phase.value}{left}"


def _duration_text(handover: Handover) -> str:
    measured, predicted = handover.measured, handover.plan.prediction
    if measured is None:
        return ""
    pause = (
        ""
        if measured.pause_s is None
        else f", longest pause {measured.pause_s:.1f} s{_predicted_as(predicted.pause_s)}"
    )
    idle = "" if handover.confirmed_batch_id >= 0 else f"; {handover.steps[-1].reason}"
    return f"in {measured.total_s:.1f} s{_predicted_as(predicted.total_s)}{pause}{idle}"


def _predicted_as(seconds: float | None) -> str:
    return "" if seconds is None else f" (predicted {seconds:.1f} s)"


def show_plan(plan: Plan, names: Mapping[str, str]) -> None:
    """Prints the moves as columns, and the predictions. `names`: of the queries, by id."""
    steps = count(len(plan.steps), "step")
    say(f"{plan.intent}: {plan.strategy.kind.value}, {steps}, {decimal(plan.bytes_to_move)} to move")
    _show_moves(plan, names)
    for hot in plan.hot:
        query = names.get(hot.job, hot.job)
        share = f"{hot.shares:.2f} x a worker's share of {hot.by.value}"
        say(f"hot: {query} {hot.virtual_node} has {share}; keys are not split, so the others leave {hot.worker}")
    say(_predicted(plan.prediction))


def _show_moves(plan: Plan, names: Mapping[str, str]) -> None:
    rows: list[Row] = []
    for number, step in enumerate(plan.steps, 1):
        for move in step.moves:
            where = (names.get(move.job, move.job), move.virtual_node, move.origin, move.target, move.kind.value)
            rows.append((str(number), *where, decimal(move.state_bytes), decimal(move.bytes_to_move), move.why))
    head = ("step", "query", "node", "from", "to", "kind", "state", "to move", "why there")
    show_columns(console(), head, rows)


def _predicted(prediction: Prediction) -> str:
    if prediction.total_s is None and prediction.pause_s is None:
        return f"no prediction: {prediction.basis}"
    total = "unknown time" if prediction.total_s is None else f"{prediction.total_s:.1f} s"
    pause = "unknown" if prediction.pause_s is None else f"{prediction.pause_s:.1f} s"
    return f"predicted: {total}, longest pause {pause}; from {prediction.basis}"
