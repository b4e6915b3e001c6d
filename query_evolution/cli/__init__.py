"""The commands that change queries. `rhino` finds them by the entry point `rhino.commands`."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    from query_evolution.cli import branch, modify_commands, restructure, shadow

    modify_commands.register(app, "Spark applications")
    for module in (branch, restructure, shadow):
        module.register(app, "Query checkpoints")
