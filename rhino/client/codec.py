"""One codec for all answers: protobuf messages into the dataclasses of this package, by the names of their fields.

A field of a dataclass has the name of the message's field, unless it is annotated with `At` or `Computed`. Enum values
become members of Python's enums, or lower-case texts: HANDOVER_PHASE_ROLLED_BACK is Phase.ROLLED_BACK or "rolled_back".
An optional field that is not set is None.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from rhino_core import ids
from rhino_core.errors import RemoteProtocolError
from rhino_core.rpc import convert

T = TypeVar("T")
Decoder = Callable[[Any], Any]  # takes a message
_VOCABULARY: dict[Any, Decoder] = {
    ids.GroupId: convert.group_of,
    ids.Epoch: convert.epoch_of,
    ids.JobSettings: convert.settings_of,
}
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class At:
    """The place of the value in the message, for example `worker.host`."""

    path: str


@dataclass(frozen=True, slots=True)
class Computed:
    """The value is a function of the message."""

    function: Decoder


def decode(kind: type[T], message: Any) -> T:
    """Returns the message as an object of the dataclass. Raises RemoteProtocolError for a value that is not known."""
    erased: Any = kind
    return kind(**{name: decoder(message) for name, decoder in _decoders(erased, message.DESCRIPTOR).items()})


def plain(value: Any) -> Any:
    """Returns values for JSON. Objects become dictionaries of their fields and properties, enums their values."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        names += [name for name, member in vars(type(value)).items() if isinstance(member, property)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


@functools.cache
def _decoders(kind: Any, descriptor: Any) -> dict[str, Decoder]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _decoder(field, hints[field.name], descriptor) for field in dataclasses.fields(kind)}


def _decoder(field: dataclasses.Field[Any], hint: Any, descriptor: Any) -> Decoder:
    path = field.name
    if get_origin(hint) is Annotated:
        about = hint.__metadata__[0]
        if isinstance(about, Computed):
            return about.function
        path, hint = about.path, hint.__origin__
    *outer, name = path.split(".")
    for part in outer:
        descriptor = descriptor.fields_by_name[part].message_type
    source: FieldDescriptor = descriptor.fields_by_name[name]
    optional = get_origin(hint) in (types.UnionType, Union)
    if optional:
        (hint,) = (argument for argument in get_args(hint) if argument is not type(None))
    unset = field.default if field.default is not dataclasses.MISSING else "unknown"
    value = _value(hint, source, unset)

    def decoder(message: Any) -> Any:
        for part in outer:
            message = getattr(message, part)
        if optional and not message.HasField(name):
            return None
        return value(getattr(message, name))

    return decoder


def _value(hint: Any, source: FieldDescriptor, unset: object) -> Decoder:
    """How the value of one field is converted. `unset`: the text for an enum value that is unset or not known."""
    if get_origin(hint) is tuple:
        item = _value(get_args(hint)[0], source, unset)
        return lambda values: tuple(item(value) for value in values)
    if get_origin(hint) is not None:
        return dict  # a map of scalars
    if hint in _VOCABULARY:
        return _VOCABULARY[hint]
    if dataclasses.is_dataclass(hint):
        inner: Any = hint
        return functools.partial(decode, inner)
    if source.enum_type is not None:
        return functools.partial(_enum_value, hint, source.enum_type, unset)
    return lambda value: value


def _enum_value(hint: Any, kind: EnumDescriptor, unset: object, number: int) -> Any:
    prefix = _WORDS.sub("_", kind.name).upper() + "_"
    found = kind.values_by_number.get(number)
    text = found.name.removeprefix(prefix).lower() if found is not None and number else unset
    if hint is str:
        return text
    try:
        return hint(text)
    except ValueError:
        raise RemoteProtocolError(f"{kind.name} {number}: not known to this version of Rhino") from None
