"""One codec between protobuf messages and dataclasses, by the names of their fields.

A field of a dataclass has the name of the message's field, unless it is annotated with `At` or `Computed`. Enum values
become members of Python's enums, or lower-case texts: HANDOVER_PHASE_ROLLED_BACK is Phase.ROLLED_BACK or "rolled_back".
An unset optional field is None.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rhino_core import ids
from rhino_core.errors import RemoteProtocolError
from rhino_core.rpc import convert
from rhino_model.places import Computed
from rhino_model.requests import strategy_of
from rhino_model.strategy import Strategy

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Decoder = Callable[[Any], Any]  # takes a message
_VOCABULARY: dict[Any, Decoder] = {
    ids.GroupId: convert.group_of,
    ids.Epoch: convert.epoch_of,
    ids.JobSettings: convert.settings_of,
    Strategy: strategy_of,
}
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def decode(kind: type[T], message: Any) -> T:
    """Returns the message as an object of the dataclass. Raises RemoteProtocolError for an unknown value."""
    erased: Any = kind
    return kind(**{name: decoder(message) for name, decoder in _decoders(erased, message.DESCRIPTOR).items()})


def encode(kind: type[M], value: Any) -> M:
    """Returns the object as a message of this type. Fields missing in the object, or None there, are not set."""
    descriptor: Any = kind.DESCRIPTOR
    found = ((name, _encoded(source, getattr(value, name, None))) for name, source in descriptor.fields_by_name.items())
    return kind(**{name: item for name, item in found if item is not None})


def _encoded(source: FieldDescriptor, value: Any) -> Any:
    """A value for this field. Maps are of scalars."""
    if isinstance(value, list | tuple):
        return [_encoded(source, item) for item in value]
    if value is None or isinstance(value, Mapping):
        return value
    if source.message_type is not None:
        return encode(GetMessageClass(source.message_type), value)
    if isinstance(value, enum.Enum):
        if source.enum_type is None:
            return value.value
        return source.enum_type.values_by_name[_prefix(source.enum_type) + value.name].number
    return value


def plain(value: Any) -> Any:
    """Returns values for JSON. Objects become dictionaries of their fields and properties, enums their values.

    A virtual node becomes its name.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, ids.VirtualNode):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        members = {name: member for base in type(value).__mro__ for name, member in vars(base).items()}
        names += [name for name, member in members.items() if isinstance(member, property)]
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
    """How the value of one field is converted. `unset`: the text for an unset or unknown enum value."""
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
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return functools.partial(_member, hint, source.name)
    return lambda value: value


def _prefix(kind: EnumDescriptor) -> str:
    return _WORDS.sub("_", kind.name).upper() + "_"


def _member(kind: type[enum.Enum], name: str, text: str) -> enum.Enum:
    try:
        return kind(text)
    except ValueError:
        raise RemoteProtocolError(f"{name} {text!r}: not known to this version of Rhino") from None


def _enum_value(hint: Any, kind: EnumDescriptor, unset: object, number: int) -> Any:
    found = kind.values_by_number.get(number)
    text = found.name.removeprefix(_prefix(kind)).lower() if found is not None and number else unset
    if hint is str:
        return text
    try:
        return hint(text)
    except ValueError:
        raise RemoteProtocolError(f"{kind.name} {number}: not known to this version of Rhino") from None
