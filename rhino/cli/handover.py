"""`rhino plan` and `rhino handover`: plan, start and follow. Data on stdout, progress on stderr."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from handover_manager.core.strategy import Strategy
from rhino.cli import exit_codes
from rhino.cli.intents import Wish
from spark_connector.rpc.client import HandoverClient
from spark_connector.rpc.handovers import Handover, Phase, Plan, Prediction


def plain(value: Any) -> Any:
    """A dataclass as JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(value), default=lambda item: item.value))


def run_plan(manager: str, wish: Wish, strategy: Strategy, *, as_json: bool) -> int:
    """Shows the plan; returns the exit code. RhinoErrors are left to the caller."""
    intent = wish.intent
    with HandoverClient(manager) as client:
        plan = client.plan(wish.job, wish.nodes, wish.to, intent=intent, strategy=strategy)
    print(json.dumps(plain(plan), indent=2)) if as_json else show_plan(plan)
    return exit_codes.OK


def run_handover(manager: str, wish: Wish, strategy: Strategy, *, deadline_s: float, wait: bool, as_json: bool) -> int:
    """Starts a handover and, with `wait`, follows it; returns the exit code. RhinoErrors are left to the caller."""
    intent = wish.intent
    with HandoverClient(manager) as client:
        handover = client.start(wish.job, wish.nodes, wish.to, intent=intent, strategy=strategy, deadline_s=deadline_s)
        print(f"handover {handover.handover_id} started", file=sys.stderr)
        if wait:
            handover = follow(client, handover, strategy, deadline_s)
    if as_json:
        print(json.dumps(plain(handover), indent=2))
    else:
        print(f"{handover.handover_id} {handover.phase.value} {handover.reason or _took(handover)}".rstrip())
    return exit_codes.FAILED if wait and handover.phase is not Phase.CONFIRMED else exit_codes.OK


def run_cancel(manager: str, handover_id: str, *, as_json: bool) -> int:
    """No further step is marked; returns the exit code. RhinoErrors are left to the caller."""
    with HandoverClient(manager) as client:
        handover = client.cancel(handover_id)
    if as_json:
        print(json.dumps(plain(handover), indent=2))
    else:
        print(f"{handover.handover_id} {handover.phase.value} {handover.reason}".rstrip())
    return exit_codes.OK


def follow(client: HandoverClient, started: Handover, strategy: Strategy, deadline_s: float) -> Handover:
    """Prints progress until the handover has ended; its last status."""
    ahead_s = max(strategy.start_at_ms / 1000 - time.time(), 0.0)
    timeout_s = ahead_s + len(started.steps) * (deadline_s + strategy.gap_s) + 30
    last, told = started, ""
    for last in client.watch(started.handover_id, timeout_s=timeout_s):
        text = _progress(last)
        if text != told:
            print(text, file=sys.stderr, flush=True)
        told = text
        if last.phase.ended:
            break
    return last


def _progress(handover: Handover) -> str:
    left = f", waiting for {', '.join(handover.waiting_for)}" if handover.waiting_for else ""
    steps = ""
    if len(handover.steps) > 1:
        ended = sum(step.phase.ended for step in handover.steps)
        steps = f"step {min(ended + 1, len(handover.steps))} of {len(handover.steps)}: "
    return f"{steps}{handover.phase.value}{left}"


def _took(handover: Handover) -> str:
    measured, predicted = handover.measured, handover.plan.prediction
    if measured is None:
        return ""
    pause = "" if measured.pause_s is None else f", longest pause {measured.pause_s:.1f} s{_told(predicted.pause_s)}"
    idle = "" if handover.confirmed_batch_id >= 0 else f"; {handover.steps[-1].reason}"
    return f"in {measured.total_s:.1f} s{_told(predicted.total_s)}{pause}{idle}"


def _told(seconds: float | None) -> str:
    return "" if seconds is None else f" (predicted {seconds:.1f} s)"


def show_plan(plan: Plan) -> None:
    """Prints a table of the moves and the predictions, for people."""
    title = f"{plan.intent}: {plan.strategy}, {len(plan.steps)} steps, {decimal(plan.bytes_to_move)} to move"
    table = Table(title=title, title_justify="left")
    for column in ("step", "job", "virtual node", "origin", "target", "kind", "state", "to move", "why there"):
        table.add_column(column)
    moves = iter(plan.moves)
    for number, step in enumerate(plan.steps, 1):
        for _ in step.virtual_nodes:
            move = next(moves)
            sizes = (decimal(move.state_bytes), decimal(move.bytes_to_move))
            names = (move.job[:8], move.virtual_node, move.origin, move.target, move.kind.value)
            table.add_row(str(number), *names, *sizes, move.why)
    console = Console()
    console.print(table)
    console.print(_predicted(plan.prediction))


def _predicted(prediction: Prediction) -> str:
    if prediction.total_s is None and prediction.pause_s is None:
        return f"no prediction: {prediction.basis}"
    total = "unknown time" if prediction.total_s is None else f"{prediction.total_s:.1f} s"
    pause = "unknown" if prediction.pause_s is None else f"{prediction.pause_s:.1f} s"
    return f"predicted: {total}, longest pause {pause}; from {prediction.basis}"
