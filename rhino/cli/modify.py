"""What `rhino modify` and `rhino modifications` do and print. Data on stdout."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rhino.cli import exit_codes
from rhino.cli.arguments import seconds
from rhino.cli.columns import Row, show_columns
from rhino.cli.options import JsonOption
from rhino.cli.output import console, say, say_json
from rhino_core.errors import InvalidRequestError
from spark_connector.modify.ledger import State, View
from spark_connector.modify.modifications import Modifications
from spark_connector.modify.record import Kind

FAILURES = (State.REFUSED, State.RETURNED)
HEADS = ("number", "state", "batches", "kind", "target", "what", "by", "at", "reason")


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """How long the command waits, and the form of its answer."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the driver check the change only; it never comes in force.")
    ] = False
    wait_s: Annotated[
        float,
        typer.Option(
            help="Wait this many seconds until the change is in force or refused; 0: do not wait.",
            callback=seconds("--wait-s"),
        ),
    ] = 60.0
    as_json: JsonOption = False


def carry_out(checkpoint: str, change: Callable[[Modifications], View], options: WaitOptions) -> int:
    """Makes a change, waits for its fate, prints it, and returns the exit code. The caller handles RhinoErrors."""
    query = Modifications(checkpoint)
    view = change(query)
    if options.wait_s > 0:
        view = query.wait(view.record.number, timeout_s=options.wait_s)
    show(view, as_json=options.as_json)
    return exit_codes.REFUSED if view.state in FAILURES else exit_codes.OK


def show_list(views: Sequence[View]) -> None:
    """Prints a table of modifications."""
    if views:
        show_columns(console(), HEADS, map(_row, views))
    else:
        say("the query has no modifications")


def show(view: View, *, as_json: bool) -> None:
    """Prints a modification as a sentence, or as JSON."""
    if as_json:
        say_json(plain(view))
        return
    batches = f" from batch {view.first_batch} on" if view.state is State.IN_FORCE else ""
    reason = f": {view.reason}" if view.reason else ""
    change = view.record.change
    said = f"modification {view.record.number} of {change.kind} {change.target} is {_words(view.state)}"
    say(f"{said}{batches}{reason}")


def parse_columns(pairs: Sequence[str]) -> dict[str, str]:
    """Raises InvalidRequestError for a text without "=", and for a column that is named twice."""
    chosen: dict[str, str] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name.strip():
            raise InvalidRequestError(f"--set {pair!r}: must be COLUMN=EXPRESSION")
        if name.strip() in chosen:
            raise InvalidRequestError(f"--set {pair!r}: column {name.strip()} is given twice")
        chosen[name.strip()] = text.strip()
    return chosen


def _words(state: State) -> str:
    return state.value.replace("_", " ")


def _row(view: View) -> Row:
    record, change = view.record, view.record.change
    batches = "" if view.first_batch is None else f"{view.first_batch}-"
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created_ms / 1000))
    return (
        str(record.number),
        _words(view.state),
        batches + ("" if view.last_batch is None else str(view.last_batch)),
        str(change.kind),
        change.target,
        _what(view),
        record.author,
        at,
        view.reason,
    )


def _what(view: View) -> str:
    change = view.record.change
    if change.removes:
        return "remove"
    if change.kind is Kind.FUNCTION:
        return f"{len(change.code.pickled)} bytes"
    return change.condition or ", ".join(f"{name}={text}" for name, text in change.columns.items())


def plain(view: View) -> dict[str, Any]:
    """Returns a modification for JSON, without its code."""
    record, change = view.record, view.record.change
    return {
        "number": record.number,
        "state": view.state,
        "first_batch": view.first_batch,
        "last_batch": view.last_batch,
        "kind": change.kind,
        "target": change.target,
        "removes": change.removes,
        "condition": change.condition,
        "columns": change.columns,
        "code_bytes": len(change.code.pickled),
        "dry_run": record.dry_run,
        "author": record.author,
        "created_ms": record.created_ms,
        "reason": view.reason,
    }
