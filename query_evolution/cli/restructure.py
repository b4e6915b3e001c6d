"""`rhino restructure`: other stateful operators, with the state of the former ones.

Data on stdout, progress on stderr.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from rhino.cli import exit_codes
from rhino.cli.option_groups import expanded
from rhino.cli.options import CallOptions, DryRunOption
from rhino.cli.output import console, say, say_json, shown
from rhino_core.errors import InvalidRequestError
from rhino_model.codec import plain

if TYPE_CHECKING:
    from query_evolution.client.links import Progress
    from query_evolution.client.restructure import Restructured


@dataclass(frozen=True, slots=True)
class ChoiceOptions:
    """A person's statements about operators, by their ids in Spark."""

    pair: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="The former operator OLD is the new operator NEW. May be repeated."),
    ] = None
    drop: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="OLD", help="Give up the state of the former operator OLD. May be repeated."),
    ] = None


def restructure(
    source: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The checkpointLocation of the stopped query, a folder here.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="NEW_CHECKPOINT", help="The checkpoint for the new code; must not exist.")
    ],
    sketch: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Checkpoint of a query that the new code has begun, with any sink; or the one of rebuild(), whose "
            "state new operators get.",
        ),
    ],
    choices: ChoiceOptions,
    call: CallOptions,
    batch: Annotated[
        int | None, typer.Option(min=0, help="The last batch of the former code. Default: the newest committed.")
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Insert, remove or reorder stateful operators of a stopped query, and keep the state of the others.

    Operators are paired by kind and columns of their state. Uncertain pairs are refused: see --pair and --drop. New
    operators begin empty, or with the state that rebuild() in Python has made of former rows. State is not copied, and
    the former checkpoint stays as it is. To go back, start the former code on it.
    """
    from query_evolution.client.restructure import restructure as make
    from query_evolution.modify.modifications import folder_of
    from query_evolution.structure.alignment import Choices

    with _progress() as report:
        made = make(
            call.manager,
            folder_of(source),
            folder_of(target),
            folder_of(sketch),
            choices=Choices(parse_pairs(choices.pair or ()), frozenset(choices.drop or ())),
            batch=batch,
            dry_run=dry_run,
            report=report,
        )
    if call.as_json:
        say_json({"dry_run": dry_run, **plain(made)})
    else:
        _say(made, source, dry_run=dry_run)
    raise typer.Exit(exit_codes.OK)


def parse_pairs(texts: Sequence[str]) -> dict[int, int]:
    """Returns new operators by old ones. Raises InvalidRequestError for another form, or an old one named twice."""
    pairs: dict[int, int] = {}
    for text in texts:
        match = re.fullmatch(r"(\d{1,6})=(\d{1,6})", text, re.ASCII)
        if match is None:
            raise InvalidRequestError(f"--pair {text}: must be OLD=NEW, two ids of operators such as 0=1")
        if int(match[1]) in pairs:
            raise InvalidRequestError(f"--pair {text}: the former operator {match[1]} is named twice")
        pairs[int(match[1])] = int(match[2])
    return pairs


def _say(made: Restructured, source: str, *, dry_run: bool) -> None:
    console().print(_table(made))
    if dry_run:
        say(f"would restructure query {made.source_job} after batch {made.batch}: {_stores(made)}")
        return
    say(f"restructured query {made.source_job} after batch {made.batch} in {made.duration_s:.2f} s")
    size = f"{made.files} files, {decimal(made.linked_bytes)} linked on {', '.join(made.workers)}"
    say(f"query {made.job}: {_stores(made)}, {size}")
    say(f"start the new code with checkpointLocation {made.checkpoint} and the same sink")
    say(f"to go back, start the former code on {source}: its state stays")
    for job in (made.source_job, *([made.rebuilt_job] if made.rebuilt_job else [])):
        say(f"when it is not needed any more: rhino forget --job {job}")


def _stores(made: Restructured) -> str:
    born = f"{made.rebuilt_stores} were rebuilt" if made.rebuilt_job else f"{made.empty_stores} begin empty"
    return f"{made.stores} stores keep their state, {born}"


def _table(made: Restructured) -> Table:
    table = Table("old", "new", "", "operator", "key", "value")
    notes = {"born": "born, empty", "rebuilt": f"born, rebuilt from {made.rebuilt_from}"}
    for one in shown(made.operators):
        ids = ["-" if number is None else str(number) for number in (one.old, one.new)]
        table.add_row(*ids, notes.get(one.fate, one.fate), one.name, one.key, one.value)
    return table


@contextmanager
def _progress() -> Iterator[Progress]:
    """A changing line on stderr: the numbers of linked stores and bytes."""
    with console(error=True).status("reading the checkpoints") as status:

        def report(what: str, done: int, total: int, size_bytes: int) -> None:
            status.update(f"{what} {done} of {total} stores, {decimal(size_bytes)}")

        yield report


def register(app: typer.Typer, panel: str) -> None:
    """Adds the command to `app`."""
    app.command("restructure", rich_help_panel=panel)(expanded(restructure))
