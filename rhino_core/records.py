"""Typed records on disk: dataclasses as JSON, by their annotations.

A newer version may have written a record before the user returned to this one. It may have added fields, but no list
elements: unknown fields are ignored. It may have added values of an enumeration: these are mapped to a known value, or
the record is refused with an error about the version. A field not written by an older version has its default.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import logging
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from rhino_core.errors import IntegrityError, PreconditionError

log = logging.getLogger(__name__)
T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)
Substitutes = Mapping[type[enum.Enum], enum.Enum]
PRIMITIVES: dict[type, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}


class Record:
    """Base of the dataclasses that a journal keeps.

    Their fields are numbers, texts, enumerations, records and other dataclasses, and named tuples, tuples and
    dictionaries of these. A named tuple is a list on disk.
    """

    __slots__ = ()


class _Place(NamedTuple):
    """The name of the record being read, for messages, and substitutes for unknown values of enumerations."""

    what: str
    substitutes: Substitutes

    def at(self, field: str) -> _Place:
        return _Place(f"{field} of {self.what}", self.substitutes)


def encode(value: object) -> Any:
    """The JSON value of a record. Tuples stay tuples: JSON writes them as lists."""
    if dataclasses.is_dataclass(value):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        plain = all(isinstance(element, int | float | str) or hasattr(element, "_fields") for element in value)
        return value if plain else tuple(map(encode, value))
    return value


def decode(kind: type[T], value: Any, what: str, substitutes: Substitutes | None = None) -> T:
    """The record of a JSON value. `what` names the record. `substitutes` stand for unknown values of enumerations.

    Raises PreconditionError for a value that only a newer version knows, and IntegrityError for any other value.
    """
    decoded: T = _decoder(cast(Any, kind))(value, _Place(what, substitutes or {}))
    return decoded


@functools.cache
def _decoder(hint: Any) -> Callable[[Any, _Place], Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in PRIMITIVES:
        return functools.partial(_primitive, hint)
    if origin is types.UnionType:
        (inner,) = [_decoder(argument) for argument in arguments if argument is not types.NoneType]
        return lambda value, place: None if value is None else inner(value, place)
    if origin is tuple:
        element = _decoder(arguments[0])
        return lambda value, place: tuple(element(item, place) for item in _listed(value, place))
    if origin is dict:
        element = _decoder(arguments[1])
        return lambda value, place: {key: element(item, place.at(key)) for key, item in _fields(value, place).items()}
    if issubclass(hint, enum.Enum):
        return lambda value, place: known_value(hint, value, place.what, place.substitutes.get(hint))
    if issubclass(hint, tuple):
        elements = [_decoder(kind) for kind in typing.get_type_hints(hint).values()]
        return functools.partial(_named_tuple, hint, elements)
    return functools.partial(_dataclass, hint)


def _primitive(kind: type, value: Any, place: _Place) -> Any:
    if not isinstance(value, PRIMITIVES[kind]):
        raise IntegrityError(f"{place.what} is {str(value)[:80]!r}: must be of type {kind.__name__}")
    return value


def _listed(value: Any, place: _Place) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise IntegrityError(f"{place.what} is {str(value)[:80]!r}: must be a list")
    return list(value)


def _fields(value: Any, place: _Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise IntegrityError(f"{place.what} is {str(value)[:80]!r}: must be an object")
    return value


def _named_tuple(kind: Any, elements: list[Callable[[Any, _Place], Any]], value: Any, place: _Place) -> Any:
    found = [read(item, place) for read, item in zip(elements, _listed(value, place), strict=False)]
    try:
        return kind(*found)
    except TypeError as error:
        raise IntegrityError(f"{place.what} is too short: {error}") from error


def _dataclass(kind: Any, value: Any, place: _Place) -> Any:
    hints, value = typing.get_type_hints(kind), _fields(value, place)
    found = {
        field.name: _decoder(hints[field.name])(value[field.name], place.at(field.name))
        for field in dataclasses.fields(kind)
        if field.name in value
    }
    try:
        return kind(**found)
    except TypeError as error:
        raise IntegrityError(f"{place.what} lacks a field: {error}") from error


def known_fields(kind: type, record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record's fields of the dataclass `kind`."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in record.items() if name in names}


def known_value(kind: type[E], value: object, what: str, otherwise: E | None = None) -> E:
    """Returns the member of `kind`, or `otherwise` for a value that only a newer version knows.

    Raises PreconditionError for such a value when `otherwise` is None.
    """
    try:
        return kind(value)
    except ValueError:
        found = str(value)[:80]
        if otherwise is None:
            raise PreconditionError(
                f"{what} is {found!r}: a newer version of Rhino wrote that; start that version, or a later one"
            ) from None
    log.warning("a newer Rhino wrote what is unknown here", extra={"record": what, "value": found})
    return otherwise
