"""`rhino history`: what people have done to the cluster."""

from __future__ import annotations

from rhino.cli import exit_codes
from rhino.cli.columns import Row, show_columns
from rhino.cli.handover import moment
from rhino.cli.output import console, say_json
from rhino.client.handover_client import HandoverClient
from rhino.client.handovers import Action

HEAD = ("when", "who", "what", "query", "worker", "handover", "detail", "result")


def run_history(manager: str, job: str, worker: str, *, as_json: bool) -> int:
    """Executes the command and returns its exit code. The caller handles RhinoErrors."""
    with HandoverClient(manager) as client:
        actions = client.history(job, worker)
    if as_json:
        say_json(actions)
    else:
        show_columns(console(), HEAD, map(_row, actions))
    return exit_codes.OK


def _row(action: Action) -> Row:
    concerned = (action.name or action.job, action.worker, action.handover_id)
    result = f"{action.outcome}: {action.reason}" if action.reason else action.outcome
    return moment(action.at_ms), action.by, action.kind, *concerned, action.detail, result
