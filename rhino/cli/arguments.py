"""Checks of command-line arguments. They raise InvalidSettingError with the option and its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import typer

from rhino.cli.invocation import Invocation
from rhino_core import ids
from rhino_core.errors import InvalidSettingError
from rhino_core.settings import MANAGER_PORT


def check_encoding(arguments: Iterable[str]) -> None:
    """Refuses arguments in invalid UTF-8. Messages and RocksDB require UTF-8."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise InvalidSettingError(f"argument {argument!r}: must be UTF-8") from None


def manager_address(context: typer.Context, value: str) -> str:
    """Returns "host:port", or several with commas. Ports may be left out. The invocation notes the address."""
    address = ids.with_ports(value, MANAGER_PORT)
    if not ids.are_addresses(address):
        raise InvalidSettingError(f'--manager {value!r}: must be "host" or "host:port", or several with commas')
    if isinstance(context.obj, Invocation):
        context.obj.manager = address
    return address


def seconds(option: str, *, positive: bool = False) -> Callable[[float], float]:
    """Returns a check for an option: a finite number from 0 on, or above 0 with `positive`."""

    def checked(value: float) -> float:
        enough = value > 0 if positive else value >= 0
        if not math.isfinite(value) or not enough:
            allowed = "above 0" if positive else "0 or more"
            raise InvalidSettingError(f"{option} {value:g}: must be a number of seconds, {allowed}")
        return value

    return checked


def one_of(option: str, allowed: Iterable[str]) -> Callable[[str], str]:
    """Returns a check for an option that takes one of these words."""
    words = tuple(allowed)

    def checked(value: str) -> str:
        if value not in words:
            raise InvalidSettingError(f"{option} {value!r}: must be one of {', '.join(words)}")
        return value

    return checked
