"""Reads messages from JSON values, and makes such values, several times as fast as protobuf itself.

A manager starts with 200 000 records, and writes 1000 for a batch of a large query. protobuf looks up each field of
each of them; here this is done once for each kind of message.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
_LONG = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)  # texts in JSON
_NUMBERS = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32)
_TYPES: Mapping[int, type] = {FieldDescriptor.TYPE_BOOL: bool, FieldDescriptor.TYPE_STRING: str} | dict.fromkeys(
    _NUMBERS, int
)
Read = Callable[[Any], Any]
Write = Callable[[Any], Any]


class _UnusualError(Exception):
    """A value in another form than this version's."""


def message_of(kind: type[M], value: Any) -> M:
    """The message, without unknown fields. An unusual value is left to protobuf's parser.

    Raises ParseError like this parser.
    """
    try:
        made = kind(**_reader(kind.DESCRIPTOR)(value))
    except (_UnusualError, ValueError, TypeError, OverflowError):
        made = kind()
        ParseDict(value, made, ignore_unknown_fields=True)
    return made


@functools.cache
def _reader(descriptor: Any) -> Read:
    fields = {field.json_name: (field.name, _of_field(field)) for field in descriptor.fields}

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _UnusualError
        found = {}
        for key, inner in value.items():
            known = fields.get(key)
            if known is None:
                raise _UnusualError  # it may be a field by its other name
            name, of = known
            found[name] = of(inner)
        return found

    return read


def _of_field(field: Any) -> Read:
    one = _of_one(field)
    if not field.is_repeated:
        return one

    def many(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _UnusualError
        return [one(inner) for inner in value]

    return many


def _of_one(field: Any) -> Read:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _reader(field.message_type)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _member_of({name: value.number for name, value in field.enum_type.values_by_name.items()})
    if field.type in _LONG:
        return _long
    return _plain(_TYPES.get(field.type))


def _long(value: Any) -> int:
    if type(value) is not str or not value.isdecimal():
        raise _UnusualError
    return int(value)


def _member_of(numbers: Mapping[str, int]) -> Read:
    def read(value: Any) -> int:
        number = numbers.get(value) if type(value) is str else None
        if number is None:
            raise _UnusualError
        return number

    return read


def _plain(kind: type | None) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _UnusualError
        return value

    return read


def value_of(message: Message) -> dict[str, Any]:
    """The JSON value of the message, as protobuf's `MessageToDict` makes it."""
    writer = _writer(message.DESCRIPTOR)
    value: dict[str, Any] = writer(message) if writer is not None else MessageToDict(message)
    return value


@functools.cache
def _writer(descriptor: Any) -> Write | None:
    """None for messages with fields of a kind left to protobuf."""
    fields = [(field.name, field.json_name, field.has_presence, _to_one(field)) for field in descriptor.fields]
    if any(one is None for *_, one in fields):
        return None
    repeated = {field.name for field in descriptor.fields if field.is_repeated}

    def write(message: Any) -> dict[str, Any]:
        found = {}
        for name, key, has_presence, one in fields:
            assert one is not None
            if has_presence and not message.HasField(name):
                continue
            value = getattr(message, name)
            if name in repeated:
                if value:
                    found[key] = [one(inner) for inner in value]
            elif has_presence or value:
                found[key] = one(value)
        return found

    return write


def _to_one(field: Any) -> Write | None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        entry = field.message_type.GetOptions().map_entry
        return None if entry else _writer(field.message_type)
    if field.type == FieldDescriptor.TYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, number)
    if field.type in _LONG:
        return str
    return (lambda value: value) if field.type in _TYPES else None
