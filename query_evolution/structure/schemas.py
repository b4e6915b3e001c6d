"""The schema files of state, as Spark writes them. No I/O.

The format is that of Java's DataOutputStream: a version, and texts, in parts if they are long.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

from query_evolution.structure.columns import Columns, parse_columns
from rhino_core.errors import IntegrityError
from rhino_core.foreign import reading

OF_ONE_STORE = "v2"
OF_FAMILIES = "v3"


@dataclass(frozen=True, slots=True)
class Family:
    """A column family of a store: a state variable, or a part of a join. `encoder`: how Spark writes its keys."""

    name: str
    key: Columns
    value: Columns
    encoder: str
    user_key: Columns = ()

    @property
    def internal(self) -> bool:
        """Whether Spark has made it on its own, for timers and for the ends of lives."""
        return self.name.startswith("$")


def parse_schema(data: bytes) -> tuple[Columns, Columns]:
    """Returns the columns of the key and of the value in a schema file of version 2. Raises IntegrityError."""
    with reading("a schema of state"):
        source = _opened(data, OF_ONE_STORE)
        key, value = (parse_columns(_long_text(source)) for _ in range(2))
    return key, value


def parse_families(data: bytes) -> tuple[Family, ...]:
    """Returns the column families in a schema file of version 3, by name. Raises IntegrityError."""
    with reading("a schema of state"):
        source = _opened(data, OF_FAMILIES)
        found = [_family(source) for _ in range(_number(source, 4))]
    return tuple(sorted(found, key=lambda family: family.name))


def _family(source: io.BytesIO) -> Family:
    """Reads one family. The ids of schemas before key and value are for state in Avro, and differ by nothing else."""
    name = _text(source)
    _number(source, 2)
    key = parse_columns(_long_text(source))
    _number(source, 2)
    value = parse_columns(_long_text(source))
    encoder = json.dumps(json.loads(_long_text(source)), sort_keys=True)
    user_key = _long_text(source)
    return Family(name, key, value, encoder, parse_columns(user_key) if json.loads(user_key) else ())


def _opened(data: bytes, expected: str) -> io.BytesIO:
    source = io.BytesIO(data)
    if (version := _text(source)) != expected:
        raise IntegrityError(f"a schema of version {version!r}, expected {expected!r}")
    return source


def _long_text(source: io.BytesIO) -> str:
    return "".join(_text(source) for _ in range(_number(source, 4)))


def _number(source: io.BytesIO, size: int) -> int:
    data = source.read(size)
    if len(data) != size:
        raise ValueError("it ends too early")
    return int.from_bytes(data, signed=size > 2)


def _text(source: io.BytesIO) -> str:
    length = _number(source, 2)
    data = source.read(length)
    if len(data) != length:
        raise ValueError("a text ends too early")
    return data.decode()
