"""`rhino restarts`: the process that runs a supervised query, and its restarts. Data on stdout."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from query_evolution.modify.modifications import folder_of
from query_evolution.replace.core import Answer, Restart
from query_evolution.replace.folder import RestartFolder
from rhino.cli.columns import show_columns
from rhino.cli.options import JsonOption
from rhino.cli.output import console, local_time, say, say_json
from spark_connector.query_checkpoint import QueryCheckpoint

HEADS = ("number", "state", "by", "at", "reason")


def restarts(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The checkpointLocation of the query, seen as a folder here.")
    ],
    as_json: JsonOption = False,
) -> None:
    """List the supervised restarts of a query: by whom and when, and what became of them. Say who runs it."""
    folder = RestartFolder(QueryCheckpoint(folder_of(checkpoint)).folder)
    found = [_plain(folder, restart) for restart in folder.read()]
    owner = folder.owner() if folder.owned() else ""
    if as_json:
        say_json({"owner": owner, "restarts": found})
        return
    say(f"{owner} runs the query" if owner else "no supervised application runs the query")
    if found:
        rows = [(str(one["number"]), one["state"], one["by"], local_time(one["at_ms"]), one["reason"]) for one in found]
        show_columns(console(), HEADS, rows)


def _plain(folder: RestartFolder, restart: Restart) -> dict[str, Any]:
    author, at_ms = folder.asked(restart.number)
    state = _state(restart, lives=folder.lives(restart.number))
    return {"number": restart.number, "state": state, "by": author, "at_ms": at_ms, "reason": restart.reason}


def _state(restart: Restart, *, lives: bool) -> str:
    """`abandoned`: its process has ended, and nobody has said so yet."""
    if restart.end is not None:
        return restart.end.value
    if restart.answer is not None and restart.answer is not Answer.PARKED:
        return restart.answer.value
    if not lives:
        return "abandoned"
    return "asked" if restart.answer is None else "on trial"
