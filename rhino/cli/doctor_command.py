"""The command `rhino doctor`. Its work is in doctor.py, which other commands need not import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhino.cli.options import JsonOption


def register(app: typer.Typer, panel: str) -> None:
    """Adds the command to `app`."""
    app.command(rich_help_panel=panel)(doctor)


def doctor(
    checkpoint: Annotated[
        str, typer.Option(metavar="LOCATION", help="The checkpointLocation of a query: a folder, s3://, gs:// or az://.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Read only what the newest batch needs, and no data file.")
    ] = False,
    repair_into: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Make a copy there that opens. The checkpoint is not changed.")
    ] = None,
    named: Annotated[
        str, typer.Option(metavar="LOCATION", help="With --repair-into: where Spark will find the copy, if elsewhere.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Examine a query checkpoint, also of stock Spark: damage, the newest batch that opens, cost, a move to Rhino.

    Needs no Spark, no Java and no cluster. Exit code 1: it is damaged; 5: it is, and a repaired copy was made.
    """
    from rhino.cli.doctor import DoctorArguments, run_doctor

    raise typer.Exit(run_doctor(DoctorArguments(checkpoint, quick, repair_into, named, as_json)))
