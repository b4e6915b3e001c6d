"""How the command of a benchmark is given a folder, shows its table and ends."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rhino_core.errors import RhinoError


def folder(text: str) -> Path:
    """A folder to work in, as an argument. It is made if it is missing. Raises ArgumentTypeError."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}; name a folder, or one that can be made") from None
    return path


def show(table: Table) -> None:
    """On standard output, in full width if that is no terminal."""
    console = Console()
    (console if console.is_terminal else Console(width=200)).print(table)


def main(run: Callable[[], None]) -> int:
    """Exit code 0; 1 with the reason when a measurement failed; 130 when interrupted.

    Ctrl-C and SIGTERM stop and clean up as well.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run()
    except RhinoError as error:
        Console(stderr=True).print(f"[bold red]FAILED[/] {error}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
