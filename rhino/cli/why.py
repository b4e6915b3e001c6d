"""`rhino why`: shows the decisions of adaptation about the load of queries, with its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.handover import moment
from rhino.cli.options import CallOptions
from rhino.cli.output import say, say_json
from rhino.client.handover_client import HandoverClient
from rhino.client.overview import query_names
from rhino_model.decisions import Decision

MODES = {
    "off": "adaptation is off: nothing is observed (rhino manager --adaptation)",
    "observe": "adaptation observes, and moves nothing (rhino manager --adaptation)",
    "act": "adaptation acts: it moves virtual nodes by itself",
}


def run_why(job: str, call: CallOptions, *, last: int) -> int:
    """Prints the newest decisions and returns the exit code."""
    with HandoverClient(call.manager) as client:
        found = client.decisions(job)
        names = {} if call.as_json else query_names(client.jobs())
    newest = found.decisions[-last:]
    if call.as_json:
        say_json({"mode": found.mode, "decisions": newest})
        return exit_codes.OK
    say(MODES.get(found.mode, found.mode))
    if not newest and found.mode != "off":
        say("no decision yet: a query needs some batches first")
    for decision in newest:
        for line in _lines(decision, names):
            say(line)
    return exit_codes.OK


def _lines(decision: Decision, names: Mapping[str, str]) -> Iterable[str]:
    what = decision.outcome.value.replace("_", " ")
    often = f", {decision.times} times until {moment(decision.finished_ms)}" if decision.times > 1 else ""
    yield f"{moment(decision.started_ms)}  {names.get(decision.job, decision.job)}: {what}{often}"
    yield f"  {decision.why}"
    if numbers := _numbers(decision):
        yield f"  {numbers}"
    if decision.hot:
        yield f"  more than a worker's share alone: {', '.join(decision.hot)}"
    if decision.moves:
        copied = f", {decimal(decision.bytes_to_move)} to copy" if decision.bytes_to_move else ""
        moves = ", ".join(f"{move.virtual_node} {move.origin} -> {move.target}" for move in decision.moves)
        yield f"  moves: {moves}{copied}"
    if decision.handover_id:
        yield f"  handover {decision.handover_id}"


def _numbers(decision: Decision) -> str:
    """The imbalances and the gain, as far as they were computed."""
    named = (("imbalance", decision.measured), ("expected", decision.expected), ("planned", decision.planned))
    parts = [f"{name} {value:.2f}" for name, value in named if value is not None]
    if decision.gain_s is not None and decision.cost_s is not None:
        parts.append(f"saves {decision.gain_s:.1f} s, costs {decision.cost_s:.1f} s")
    return ", ".join(parts)
