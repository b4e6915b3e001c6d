"""`rhino history`: the actions of people and adaptation on the cluster."""

from __future__ import annotations

from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.columns import Row, show_columns
from rhino.cli.handover import moment
from rhino.cli.output import console, say_json
from rhino.client.handover_client import HandoverClient
from rhino_model.handovers import Action, HandoverFigures

HEAD = ("when", "who", "what", "query", "worker", "handover", "detail", "result")


def run_history(manager: str, job: str, worker: str, *, as_json: bool) -> int:
    with HandoverClient(manager) as client:
        actions = client.history(job, worker)
    if as_json:
        say_json(actions)
    else:
        show_columns(console(), HEAD, map(_row, actions))
    return exit_codes.OK


def _row(action: Action) -> Row:
    concerned = (action.name or action.job, action.worker, action.handover_id)
    figures = "" if action.figures is None else _figures(action.figures)
    result = ": ".join(filter(None, (action.outcome, action.reason, figures)))
    return moment(action.at_ms), action.by, action.kind, *concerned, action.detail, result


def _figures(figures: HandoverFigures) -> str:
    """The measured figures, each beside its prediction."""
    pause = _seconds("pause", figures.pause_s, figures.predicted_pause_s)
    total = _seconds("took", figures.total_s, figures.predicted_total_s)
    moved = "" if figures.total_s is None else _moved(figures)
    return ", ".join(filter(None, (pause, total, moved)))


def _seconds(what: str, measured: float | None, predicted: float | None) -> str:
    if measured is None:
        return ""
    return f"{what} {measured:.1f} s" + ("" if predicted is None else f" (predicted {predicted:.1f} s)")


def _moved(figures: HandoverFigures) -> str:
    return f"{decimal(figures.bytes_moved)} moved (predicted {decimal(figures.bytes_to_move)})"
