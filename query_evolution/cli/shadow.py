"""`rhino shadow`, the findings of a shadow run, and `rhino promote`. Data on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from rhino.cli import exit_codes
from rhino.cli.arguments import one_of
from rhino.cli.options import DryRunOption, JsonOption, ManagerOption
from rhino.cli.output import console, say, say_json, shown
from rhino_core.settings import DEFAULT_MANAGER
from rhino_model.codec import plain

if TYPE_CHECKING:
    from query_evolution.client.promote import Promoted
    from query_evolution.shadows.report import ComparedBatch, Difference, ShadowReport

ROWS_MAX = 20  # of the table


def shadow(
    branch: Annotated[
        str, typer.Argument(metavar="BRANCH", help="The checkpoint of the branch, seen as a folder here.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show whether the outputs of a live query and of its branch agree, as query_evolution.shadow() has compared them.

    Exit code 0: all batches that were compared agree. Exit code 1: some differ, or the new code has failed. The rows
    shown are values of the outputs.
    """
    from query_evolution.modify.modifications import folder_of
    from query_evolution.shadows.report import Results
    from spark_connector.query_checkpoint import QueryCheckpoint

    report = Results(QueryCheckpoint(folder_of(branch))).report()
    if as_json:
        say_json(report)
    else:
        _say_report(report)
    raise typer.Exit(exit_codes.OK if report.agrees else exit_codes.FAILED)


def _say_report(report: ShadowReport) -> None:
    different = report.different
    if report.batches:
        first, last = report.batches[0].batch, report.batches[-1].batch
        compared = "1 batch" if len(report.batches) == 1 else f"{len(report.batches)} batches"
        say(f"{compared} compared, {first} to {last}: {report.equal} equal, {len(different)} differ")
    if different:
        console().print(_batches(different[:ROWS_MAX]))
        if len(different) > ROWS_MAX:
            say(f"and {len(different) - ROWS_MAX} more")
    if report.examples:
        console().print(_examples(report.examples))
    if report.failure is not None:
        say(f"the new code has failed in batch {report.failure.batch}: {report.failure.error}")


def _batches(different: tuple[ComparedBatch, ...]) -> Table:
    table = Table("batch", "live rows", "shadow rows", "only live", "only shadow", "live s", "shadow s")
    for one in different:
        counts = (one.batch, one.live_rows, one.shadow_rows, one.missing, one.surplus)
        table.add_row(*map(str, counts), f"{one.live_s:.2f}", f"{one.shadow_s:.2f}")
    return table


def _examples(examples: tuple[Difference, ...]) -> Table:
    table = Table("batch", "live", "shadow")
    for one in examples:
        table.add_row(str(one.batch), *("-" if row is None else shown(row) for row in (one.live, one.shadow)))
    return table


def promote(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint of the live query, which is stopped.")
    ],
    branch: Annotated[str, typer.Argument(metavar="BRANCH", help="The checkpoint of its branch, which is stopped.")],
    state: Annotated[
        str,
        typer.Option(
            help="branch: go on with what the new code has computed. live: with the state of the live query.",
            callback=one_of("--state", ("branch", "live")),
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(metavar="NEW_CHECKPOINT", help="With --state live: the new checkpoint; must not exist."),
    ] = None,
    manager: ManagerOption = DEFAULT_MANAGER,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let the code of a branch take the place of the live query, after its last committed batch.

    Both queries are stopped. Then start the new code with the checkpoint that this command names, and the sink of the
    live query. The checkpoint of the live query is not changed: to go back, start the former code on it.
    """
    from query_evolution.client.promote import promote as carry_out
    from query_evolution.modify.modifications import folder_of

    target = None if to is None else folder_of(to)
    done = carry_out(manager, folder_of(checkpoint), folder_of(branch), state, target=target, dry_run=dry_run)
    if as_json:
        say_json({"dry_run": dry_run, **plain(done)})
    else:
        _say_promoted(done, checkpoint, dry_run=dry_run)
    raise typer.Exit(exit_codes.OK)


def _say_promoted(done: Promoted, checkpoint: str, *, dry_run: bool) -> None:
    follows = ", which the live query had planned: it gets the same rows" if done.planned else ""
    say(f"{'would promote' if dry_run else 'promoted'} after batch {done.batch}, with the state of the {done.state}")
    if done.compared:
        say(f"{done.compared} batches were compared before, {done.different} of them differ")
    say(f"the new code goes on with batch {done.batch + 1}{follows}")
    if dry_run:
        return
    say(f"start it with checkpointLocation {done.checkpoint} and the sink of the live query")
    say(f"to go back, start the former code on {checkpoint}: its state stays")
    say(f"when it is not needed any more: rhino forget --job {done.source_job}")


def register(app: typer.Typer, panel: str) -> None:
    """Adds the commands to `app`."""
    app.command("shadow", rich_help_panel=panel)(shadow)
    app.command("promote", rich_help_panel=panel)(promote)
