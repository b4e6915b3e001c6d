"""Whether two processors of `transformWithState` declare the same state variables.

This runs in a Python worker of an executor. It is pickled by value, because the executors need not have Rhino. So it
imports nothing of Rhino. It calls `init` of both processors, with a handle that only writes their calls down.
"""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any


class Declarations:
    """Takes the place of Spark's handle in `init`. It knows the methods that declare a variable, and no others."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> object:
        return self._declare(stateName, "value", ttlDurationMs, schema)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> object:
        return self._declare(stateName, "list", ttlDurationMs, schema)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Any,
        valueSchema: Any,
        ttlDurationMs: int | None = None,
    ) -> object:
        return self._declare(stateName, "map", ttlDurationMs, userKeySchema, valueSchema)

    def _declare(self, name: str, kind: str, ttl_ms: int | None, *schemas: Any) -> object:
        """A variable with a TTL has another form in the store. How long it is, is not part of the form."""
        texts = [_schema(schema) for schema in schemas]
        self.found[name] = f"{kind}({', '.join(texts)}){' with TTL' if ttl_ms is not None else ''}"
        return object()


def differences(old: Any, new: Any) -> str:
    """Returns the differences, or "". `old`, `new`: processors in PySpark's form."""
    (old_processor, old_mode), (new_processor, new_mode) = (
        (made.__self__._stateful_processor, made.__self__._time_mode) for made in (old, new)
    )
    if old_mode.lower() != new_mode.lower():
        return f"the query has the time mode {old_mode}, and the new processor {new_mode}"
    before, after = Declarations(), Declarations()
    old_processor.init(before)
    new_processor.init(after)
    names = sorted(name for name in {*before.found, *after.found} if before.found.get(name) != after.found.get(name))
    if not names:
        return ""
    name = names[0]
    return (
        f"the state variable {name} is {before.found.get(name, 'not there')}, and in the new processor "
        f"{after.found.get(name, 'not there')}: state variables must stay"
    )


def check(header: str) -> str:
    """Takes the place of a UDF with one row: both codes as JSON. Returns the differences, or ""."""
    fields = json.loads(header)
    old, new = (pickle.loads(base64.b64decode(fields[version]))[0] for version in ("old", "new"))
    return differences(old, new)


def _schema(schema: Any) -> str:
    """The same text for `n bigint` and for a StructType of it, in most cases. Others count as different."""
    if isinstance(schema, str):
        return ", ".join(" ".join(part.split()) for part in schema.lower().split(","))
    return ", ".join(f"{field.name} {field.dataType.simpleString()}".lower() for field in schema.fields)
