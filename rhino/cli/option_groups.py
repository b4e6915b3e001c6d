"""Option groups: frozen dataclasses with the common options of several commands as fields."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with each option group among its parameters replaced by the options of the group."""
    return _made(command, command, ())


def composed(build: Callable[..., T], carry_out: Callable[..., None]) -> Callable[..., None]:
    """Returns a command with the options of both functions. `carry_out` takes what `build` returns as first argument.

    The command has the help text of `build`.
    """
    return _made(build, carry_out, tuple(inspect.signature(carry_out).parameters)[:1])


def _made(build: Callable[..., Any], carry_out: Callable[..., None], passed_on: tuple[str, ...]) -> Callable[..., None]:
    def command(**given: Any) -> None:
        if not passed_on:
            return carry_out(**_arguments(carry_out, given))
        return carry_out(build(**_arguments(build, given)), **_arguments(carry_out, given, without=passed_on))

    functions = ((build, ()), (carry_out, passed_on)) if passed_on else ((build, ()),)
    parameters = [p for function, without in functions for p in _options(function, without)]
    signature = inspect.Signature(parameters, return_annotation=None)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = build.__doc__
    return command


def _options(function: Callable[..., Any], without: tuple[str, ...]) -> Iterator[inspect.Parameter]:
    """The parameters of a function, with its option groups expanded. All are keyword-only, so any order is legal."""
    hints = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        kind = hints[parameter.name]
        if parameter.name in without:
            continue
        if not dataclasses.is_dataclass(kind):
            yield parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY)
            continue
        field_hints = get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field_hints[field.name]
            )


def _arguments(function: Callable[..., Any], given: dict[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The arguments of a function among the given values. Option groups are put together again."""
    hints = get_type_hints(function, include_extras=True)
    arguments: dict[str, Any] = {}
    for name in inspect.signature(function).parameters:
        kind = hints[name]
        if name in without:
            continue
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            arguments[name] = kind(**{field.name: given[field.name] for field in dataclasses.fields(kind)})
        else:
            arguments[name] = given[name]
    return arguments
