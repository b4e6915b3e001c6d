"""The columns of keys and values in state, as Spark's schema files describe them. No I/O.

Spark finds state by position, so it accepts other names. It does not accept other types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from rhino_core.foreign import reading

Type = str | tuple[Any, ...]  # a name such as "long", or the kind of a nested type with its parts


class Column(NamedTuple):
    """A column, or a field of a nested type. Metadata is left out: it has the delay of a watermark, for example."""

    name: str
    type: Type
    nullable: bool


Columns = tuple[Column, ...]


def parse_columns(text: str) -> Columns:
    """Returns the columns of a schema in Spark's JSON. Raises IntegrityError."""
    with reading("a schema of state"):
        parsed = _type(json.loads(text))
        if isinstance(parsed, str) or parsed[0] != "struct":
            raise ValueError("not a struct")
    return tuple(parsed[1])


def _type(value: str | Mapping[str, Any]) -> Type:
    if isinstance(value, str):
        return value
    match value["type"]:
        case "struct":
            fields = (Column(f["name"], _type(f["type"]), bool(f["nullable"])) for f in value["fields"])
            return ("struct", tuple(fields))
        case "array":
            return ("array", _type(value["elementType"]), bool(value["containsNull"]))
        case "map":
            parts = _type(value["keyType"]), _type(value["valueType"])
            return ("map", *parts, bool(value["valueContainsNull"]))
        case other:  # "udt", and what later versions of Spark may add: equal, or another type
            return (str(other), json.dumps(value, sort_keys=True))


def fits(stored: Columns, new: Columns) -> bool:
    """Whether state with the columns `stored` can be used by an operator with the columns `new`, as Spark checks it."""
    return len(stored) == len(new) and all(
        (before.nullable or not after.nullable) and _fits(before.type, after.type)
        for before, after in zip(stored, new, strict=True)
    )


def _fits(stored: Type, new: Type) -> bool:
    if isinstance(stored, str) or isinstance(new, str) or stored[0] != new[0]:
        return stored == new
    match stored[0]:
        case "struct":
            return fits(stored[1], new[1])
        case "array":
            return _fits(stored[1], new[1]) and (stored[2] or not new[2])
        case "map":
            return all(_fits(stored[part], new[part]) for part in (1, 2)) and (stored[3] or not new[3])
    return stored == new


def shown(columns: Columns) -> str:
    """Returns the columns for people, such as "k long, w struct"."""
    return ", ".join(f"{c.name} {c.type if isinstance(c.type, str) else c.type[0]}" for c in columns) or "-"
