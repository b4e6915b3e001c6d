"""The question before a command that deletes or replaces something."""

from __future__ import annotations

import sys

import typer

from rhino_core.errors import InvalidRequestError, PreconditionError


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
