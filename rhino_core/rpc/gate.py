"""The gate: checks all messages from outside: requests, replies and frames of push streams.

The rules of all fields (rhino_core/rpc/rules.py), including those of nested messages, are compiled once per message
type. The result is one function without calls or a loop over rules, because a commit passes the gate several times.
Code behind the gate can rely on the result: names are safe as folder names and keys, numbers are finite and in range,
lists are bounded and texts are printable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from rhino_core.errors import InvalidRequestError, RemoteProtocolError
from rhino_core.rpc import rules
from rhino_core.rpc.rules import Limit, Name, Number, Rule

PACKAGE = "rhino.v1."
M = TypeVar("M", bound=Message)
Check = Callable[[Any], None]
Descriptor: TypeAlias = Any  # of a message or a field; protobuf's stubs do not cover all attributes
Field: TypeAlias = Any
_SIMPLE = (FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM)  # the converters handle unknown enum values
_UNSIGNED = (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64)
_checks: dict[type, Check] = {}


def check(message: Message) -> None:
    """Shortens and cleans texts. Raises InvalidRequestError with the field, its value and the allowed values."""
    (_checks.get(type(message)) or _check_for(message))(message)


def checked(reply: M, doing: str) -> M:
    """Checks and returns a reply. A bad reply is not the caller's fault, so it raises RemoteProtocolError."""
    try:
        (_checks.get(type(reply)) or _check_for(reply))(reply)
    except InvalidRequestError as error:
        raise RemoteProtocolError(f"{doing}: {error}") from error
    return reply


def has_rule(field: Field) -> bool:
    """Whether the rules cover the field. `check` raises LookupError for a message with an uncovered field."""
    try:
        _lines(field, "m", {})
    except LookupError:
        return False
    return True


def _check_for(message: Message) -> Check:
    found = _checks[type(message)] = _compiled(message.DESCRIPTOR)
    return found


def _compiled(descriptor: Descriptor) -> Check:
    if not descriptor.full_name.startswith(PACKAGE):
        return lambda message: None  # health and reflection: their strings are never used as names
    scope: dict[str, Any] = {"out_of_range": _out_of_range}
    source = "\n".join(["def check(m):", *_indented([*_body(descriptor, "m", scope), "return None"])])
    exec(compile(source, f"<gate of {descriptor.full_name}>", "exec"), scope)  # source made from the rules only
    found: Check = scope["check"]
    return found


def _body(descriptor: Descriptor, m: str, scope: dict[str, Any]) -> list[str]:
    """Returns statements to check the message in the variable `m`. Adds their functions to `scope`."""
    one_of = {field.name for alternatives in descriptor.oneofs for field in _messages(alternatives)}
    lines = [line for field in descriptor.fields if field.name not in one_of for line in _lines(field, m, scope)]
    for alternatives in descriptor.oneofs:
        fields = _messages(alternatives)
        lines += [f"which = {m}.WhichOneof({alternatives.name!r})"] if fields else []
        for word, field in zip(("if", *["elif"] * len(fields)), fields, strict=False):
            lines += [f"{word} which == {field.name!r}:", *_indented(_lines(field, m, scope) or ["pass"])]
    return lines


def _messages(alternatives: Field) -> list[Field]:
    """Returns the messages among the alternatives of a oneof."""
    return [field for field in alternatives.fields if field.type == FieldDescriptor.TYPE_MESSAGE]


def _lines(field: Field, m: str, scope: dict[str, Any]) -> list[str]:
    """Like `_body`, for one field. Raises LookupError for a field without a rule."""
    read = f"{m}.{field.name}"
    if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.GetOptions().map_entry:
        inside = _value(read, field, rules.MAP_KEY, scope)
        return [f"many = {read}", *_bounded(field), "for v in many:", *_indented(inside)]
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _message(field, m, scope)
    rule = None if field.type in _SIMPLE else _rule(field)
    if rule is rules.ANYTHING:
        return []
    if field.is_repeated:
        inside = _value(f"{read}[i]", field, rule, scope) if rule is not None else ["pass"]
        return [f"many = {read}[:]", *_bounded(field), "for i, v in enumerate(many):", *_indented(inside)]
    if rule is None:
        return []
    return [f"v = {read}", *_value(read, field, rule, scope)]


def _message(field: Field, m: str, scope: dict[str, Any]) -> list[str]:
    inner, read = f"{m}_{field.name}", f"{m}.{field.name}"
    body = _body(field.message_type, inner, scope)
    if field.is_repeated:  # copied to a list: iterating over protobuf's container is slower
        each = [f"for {inner} in many:", *_indented(body)] if body else []
        return [f"many = {read}[:]", *_bounded(field), *each]
    if not body:
        return []
    if _key(field) in rules.MAY_BE_ABSENT:
        return [f"if {m}.HasField({field.name!r}):", *_indented([f"{inner} = {read}", *body])]
    return [f"{inner} = {read}", *body]  # an absent message has empty names and is refused because of them


def _indented(lines: list[str]) -> list[str]:
    return [f" {line}" for line in lines]


def _value(target: str, field: Field, rule: Rule, scope: dict[str, Any]) -> list[str]:
    """Returns statements to check the variable `v`, read from `target`."""
    key = _key(field)
    mine = key.replace(".", "_")
    if isinstance(rule, Name):
        scope[f"good_{mine}"], scope[f"learn_{mine}"] = rule.good, rule.learn
        return [f"if v not in good_{mine}:", f" learn_{mine}(v, {key!r})"]
    if isinstance(rule, Number):
        within = f"v <= {rule.most}" if field.type in _UNSIGNED else f"{rule.least} <= v <= {rule.most}"
        return [f"if not {within}:", f" out_of_range({key!r}, v, {rule.what!r})"]
    if isinstance(rule, Limit):
        return [f"if len(v) > {rule.most}:", f" out_of_range({key!r}, f'{{len(v)}} bytes', {rule.what!r})"]
    scope[f"clean_{mine}"] = rule.cleaned
    return [f"if len(v) > {rule.characters} or not v.isprintable():", f" {target} = clean_{mine}(v)"]


def _bounded(field: Field) -> list[str]:
    """Returns statements to check the number of entries in `many`."""
    most = rules.LENGTHS.get(_key(field), rules.LENGTH)
    what = f"a list of at most {most} entries"
    return [f"if len(many) > {most}:", f" out_of_range({_key(field)!r}, f'{{len(many)}} entries', {what!r})"]


def _key(field: Field) -> str:
    return f"{field.containing_type.name}.{field.name}"


def _rule(field: Field) -> Rule:
    """Returns the rule for "<message>.<field>", else for the field's name. A name has one meaning in all messages."""
    found = rules.FIELDS.get(_key(field)) or rules.FIELDS.get(field.name)
    if found is None:
        raise LookupError(f"{_key(field)} has no rule in rhino_core/rpc/rules.py")
    return found


def _out_of_range(field: str, value: object, what: str) -> None:
    raise InvalidRequestError(f"{field} = {value}: must be {what}")
