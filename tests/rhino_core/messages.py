"""All messages of all services by their descriptors: harmless samples, and one hostile value at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rhino_core.errors import InvalidRequestError
from rhino_core.rpc import rules
from rhino_pb import archive_pb2, common_pb2, handover_pb2, peer_pb2, replication_pb2, sidecar_pb2, witness_pb2

MODULES = (archive_pb2, common_pb2, peer_pb2, sidecar_pb2, replication_pb2, handover_pb2, witness_pb2)
CANDIDATES = ("w1", "1_a.changelog", "host:1", "0/5", "s3://bucket/a")
HOSTILE_NAMES = ("../../x", "/etc/passwd", "a\x00b", "a\nb", "\x1b[2Jx", "name with blanks", "é", "x" * 300)
Path = tuple[Any, ...]


def messages() -> list[Any]:
    return [d for module in MODULES for d in module.DESCRIPTOR.message_types_by_name.values()]


def methods() -> list[MethodDescriptor]:
    services = [s for module in MODULES for s in module.DESCRIPTOR.services_by_name.values()]
    return [method for service in services for method in service.methods]


def rule_of(field: Any) -> rules.Rule | None:
    return rules.FIELDS.get(f"{field.containing_type.name}.{field.name}") or rules.FIELDS.get(field.name)


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def harmless(field: Any) -> str:
    """A value that the rule of this string field allows."""
    rule = rule_of(field)
    for candidate in CANDIDATES:
        try:
            if isinstance(rule, rules.Name):
                rule.learn(candidate, field.name)
        except InvalidRequestError:
            continue
        return candidate
    raise AssertionError(f"{field.full_name}: no candidate is allowed")


def sample(descriptor: Any) -> Any:
    """Every field set, of alternatives none."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if not is_map(field) and (field.containing_oneof is None or field.containing_oneof.name.startswith("_")):
            fill(message, field)
    return message


def fill(message: Any, field: Any) -> None:
    if field.message_type is not None:
        value: Any = sample(field.message_type)
    elif field.type == FieldDescriptor.TYPE_STRING:
        value = harmless(field)
    else:
        return
    if field.is_repeated:
        getattr(message, field.name).append(value)
    elif isinstance(value, Message):
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def paths(descriptor: Any) -> Iterator[Path]:
    """To every field that is no message, through those that are."""
    for field in descriptor.fields:
        if is_map(field):
            continue
        if field.message_type is None:
            yield (field,)
        else:
            yield from ((field, *rest) for rest in paths(field.message_type))


def with_value(descriptor: Any, path: Path, value: Any) -> Any:
    """A harmless message but for this value."""
    message = sample(descriptor)
    holder = message
    for field in path[:-1]:
        if field.containing_oneof is not None:
            fill(holder, field)
        holder = getattr(holder, field.name)[0] if field.is_repeated else getattr(holder, field.name)
    last = path[-1]
    if last.is_repeated:
        getattr(holder, last.name).append(value)
    else:
        setattr(holder, last.name, value)
    return message


def dotted(path: Path) -> str:
    return ".".join(field.name for field in path)
