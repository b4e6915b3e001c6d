"""The output functions of all commands. Names, reasons and errors come from workers, drivers and users.

They escape control characters for the terminal, and square brackets: rich would take them for markup.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import IO, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from rhino_core.errors import InvalidRequestError, PreconditionError
from rhino_core.text import legible
from rhino_model.codec import plain

T = TypeVar("T")


def say(text: str, *, error: bool = False) -> None:
    """Prints a line on stdout, or on stderr."""
    _print(legible(text), error=error, flush=error)


def say_json(value: Any) -> None:
    """Prints a value, such as an answer of the manager, as JSON on stdout, in ASCII: other characters are escaped."""
    _print(json.dumps(plain(value), indent=2))


def say_json_line(value: Any, *, error: bool = False) -> None:
    """Like `say_json`, on one line, for streams of values; also on stderr."""
    _print(json.dumps(plain(value)), error=error, flush=True)


def _print(text: str, *, error: bool = False, flush: bool = False) -> None:
    """Raises BrokenPipeError without an errno: Typer takes one with it for its own, and exits with code 1."""
    try:
        print(text, file=sys.stderr if error else sys.stdout, flush=flush)
    except BrokenPipeError:
        raise BrokenPipeError from None


class _Console(Console):
    """Reports the end of a reader like `print` does. Rich would end the process with exit code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, error: bool = False, file: IO[str] | None = None) -> Console:
    """Returns a console for tables and colours. Callers must pass texts through `shown` first. `file`: not stdout."""
    return _Console(stderr=error, emoji=False, file=file)


def shown(value: T) -> T:
    """Returns a copy with texts safe in rich's markup. Accepts a text, or dataclasses and tuples of texts."""
    found: Any = value
    if isinstance(value, str):
        found = escape(legible(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: shown(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
        found = dataclasses.replace(value, **fields)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        found = type(value)(*map(shown, value))
    elif isinstance(value, list | tuple):
        found = type(value)(map(shown, value))
    return found  # type: ignore[no-any-return]


def local_time(ms: float) -> str:
    """Returns a wall clock time as text in the zone of this machine."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(ms / 1000))


def confirm(what: str, *, yes: bool) -> None:
    """Asks on a terminal whether `what` may happen. `yes` (the option --yes) answers in advance.

    Raises PreconditionError for another answer, and InvalidRequestError when nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequestError(f"{what}. Nothing was changed: --yes is missing, and there is no terminal to ask on")
    if not typer.confirm(f"{what}. Continue?", err=True):
        raise PreconditionError("not confirmed: nothing was changed")
