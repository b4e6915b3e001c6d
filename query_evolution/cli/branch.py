"""`rhino branch`: a new query with the state of another one. Data on stdout."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.options import DryRunOption, JsonOption, ManagerOption
from rhino.cli.output import say, say_json
from rhino_core.settings import DEFAULT_MANAGER


def branch(
    source: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The checkpointLocation of the query, seen as a folder here.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="NEW_CHECKPOINT", help="The checkpoint of the new query; must not exist.")
    ],
    batch: Annotated[
        int | None, typer.Option(min=0, help="The last batch of the new query's state. Default: the newest committed.")
    ] = None,
    manager: ManagerOption = DEFAULT_MANAGER,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a new query that begins with the state of another one, which may be running.

    The state is not copied: both queries have links to the same files, on the workers that have them. Each has an id
    and retention of its own. Start the new one with a sink of its own, and with the same sources.
    """
    from query_evolution.client.branch import branch as make
    from query_evolution.modify.modifications import folder_of
    from rhino_model.codec import plain

    made = make(manager, folder_of(source), folder_of(target), batch=batch, dry_run=dry_run)
    if as_json:
        say_json({"dry_run": dry_run, **plain(made)})
    elif dry_run:
        say(f"would branch query {made.source_job} after batch {made.batch}, with {made.stores} stores")
    else:
        say(f"branched query {made.source_job} after batch {made.batch} in {made.duration_s:.2f} s")
        size = f"{made.files} files, {decimal(made.linked_bytes)} linked on {', '.join(made.workers)}"
        say(f"query {made.job}: {made.stores} stores, {size}")
        say(f"start it with checkpointLocation {made.checkpoint} and a sink of its own")
        say(f"when it is not needed any more: rhino forget --job {made.job}")
    raise typer.Exit(exit_codes.OK)


def register(app: typer.Typer, panel: str) -> None:
    """Adds the command to `app`."""
    app.command(rich_help_panel=panel)(branch)
