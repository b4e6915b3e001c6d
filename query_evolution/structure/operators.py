"""The stateful operators of a query, as its checkpoint describes them.

Spark writes the files below `state/<operator>` when it plans the first batch of a run. So the checkpoint of a just
begun query has them, too. There are two forms. Most operators have one file of metadata, and a schema file in each
store. transformWithState and joins of state formats 3 and 4 have metadata with versions, schema files of their own, and
one store with column families (`spark_connector/operator_metadata.py`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from query_evolution.structure.columns import Columns, shown
from query_evolution.structure.schemas import Family, parse_families, parse_schema
from rhino_core.errors import IntegrityError, PreconditionError
from rhino_core.foreign import numbers, read_bytes, reading
from spark_connector import operator_metadata
from spark_connector.query_checkpoint import DEFAULT_STORE, JOIN_STORES

METADATA = "_metadata/metadata"
SCHEMA = "_metadata/schema"
COLUMNS_UNKNOWN = "the columns of the state are not known"
JOIN = "symmetricHashJoin"


@dataclass(frozen=True, slots=True)
class Store:
    """A store of each partition of an operator. `partitions`: planned by Spark; an operator without keys uses one.

    A store with column families has the columns of one of them as `key` and `value`.
    """

    name: str
    partitions: int
    prefix_columns: int
    key: Columns
    value: Columns
    families: tuple[Family, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A state variable of transformWithState. `kind`: as Spark names it, such as "ValueState"."""

    name: str
    kind: str
    ttl: bool

    def __str__(self) -> str:
        return f"{self.name} {self.kind}{' with TTL' if self.ttl else ''}"


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator. `number`: Spark's id in the plan, from 0, nearest to the sink. `name`: its kind in Spark.

    `modes`: further properties to keep, by name: the time mode and the output mode of transformWithState. `versioned`:
    it has metadata of the second form.
    """

    number: int
    name: str
    stores: tuple[Store, ...]
    variables: tuple[Variable, ...] = ()
    modes: tuple[tuple[str, str], ...] = ()
    versioned: bool = False

    @property
    def kind(self) -> str:
        """Operators of different kinds have nothing in common."""
        if self.name != JOIN:
            return self.name
        return f"{JOIN} of state format {'1 or 2' if len(self.stores) > 1 else '3 or 4'}"

    @property
    def partitions(self) -> int:
        return self.stores[0].partitions

    @property
    def partitions_used(self) -> int:
        """An operator whose key has no columns, such as an aggregation of everything, runs in one partition."""
        return self.partitions if self.stores[0].key or (self.versioned and not self.stores[0].families) else 1

    @property
    def shown_key(self) -> str:
        return shown(self.stores[0].key)

    @property
    def shown_state(self) -> str:
        """The state for people: its columns, or its variables or column families with their columns."""
        first = self.stores[0]
        if not self.versioned:
            return shown(first.value)
        columns = {family.name: shown(family.value) for family in first.families if not family.internal}
        kinds = {variable.name: str(variable) for variable in self.variables}
        return ", ".join(f"{kinds.get(name, name)} ({text})" for name, text in columns.items()) or "-"

    def __str__(self) -> str:
        stores = f", {len(self.stores)} stores" if len(self.stores) > 1 else ""
        modes = "".join(f", {value}" for _, value in self.modes)
        what = "state" if self.versioned else "value"
        return f"{self.number} {self.name} (key: {self.shown_key}; {what}: {self.shown_state}{stores}{modes})"


def read_operators(folder: Path, batch: int | None = None) -> tuple[Operator, ...]:
    """Returns the operators of the checkpoint `folder`, by number, as they were until the end of `batch`.

    `batch` of None: as they are. Raises PreconditionError for a checkpoint without them, and IntegrityError for
    unreadable files.
    """
    state = folder / "state"
    found = numbers(state)
    if not found:
        raise PreconditionError(f"{folder}: describes no stateful operator; no batch of this query has been planned")
    if found != [*range(len(found))]:
        raise IntegrityError(f"{state}: operators {', '.join(map(str, found))}: some are missing")
    return tuple(_operator(state / str(number), number, batch) for number in found)


def _operator(folder: Path, number: int, batch: int | None) -> Operator:
    if found := operator_metadata.newest(folder, batch):
        return _versioned(folder, number, found[1])
    path = folder / METADATA
    content = _content(path, f"operator {number} is not described. Run one more batch with Spark 4.2 or later")
    with reading(path):
        version, _, body = content.decode().partition("\n")
        if version.strip() != "v1":
            raise ValueError(f"version {version!r}, expected v1")
        fields = json.loads(body)
        info, stores = _info(fields, number)
        found_stores = tuple(
            Store(s["storeName"], int(s["numPartitions"]), int(s["numColsPrefixKey"]), *_schema(folder, s["storeName"]))
            for s in stores
        )
        return Operator(number, str(info["operatorName"]), _ordered(found_stores))


def _info(fields: Mapping[str, Any], number: int) -> tuple[Mapping[str, Any], list[Any]]:
    info, stores = fields["operatorInfo"], fields["stateStoreInfo"]
    if info["operatorId"] != number or not stores:
        raise ValueError("it describes another operator, or no store")
    return info, stores


def _versioned(folder: Path, number: int, path: Path) -> Operator:
    fields = operator_metadata.read(path)
    with reading(path):
        info, (store,) = _info(fields, number)
        if store["storeName"] != DEFAULT_STORE:
            raise ValueError(f"store {store['storeName']!r}, expected {DEFAULT_STORE!r}")
        families = _families(folder, path, fields)
        first = next((family for family in families if not family.internal), families[0] if families else None)
        key, value = (first.key, first.value) if first else ((), ())
        made = Store(DEFAULT_STORE, int(store["numPartitions"]), int(store["numColsPrefixKey"]), key, value, families)
        properties = json.loads(fields["operatorPropertiesJson"])
        variables = [
            Variable(str(v["stateName"]), str(v["stateVariableType"]), bool(v["ttlEnabled"]))
            for v in properties.get("stateVariables", ())
        ]
        modes = tuple((name, str(properties[name])) for name in ("timeMode", "outputMode") if name in properties)
        variables.sort(key=lambda variable: variable.name)
        return Operator(number, str(info["operatorName"]), (made,), tuple(variables), modes, versioned=True)


def _families(folder: Path, metadata: Path, fields: Mapping[str, Any]) -> tuple[Family, ...]:
    """Returns the column families in the newest schema file of the metadata. It has all of them."""
    paths = operator_metadata.schema_paths(fields)
    if not paths:
        raise PreconditionError(
            f"{metadata}: names no schema file, because this operator was born empty and has not run yet. Run one batch"
        )
    path = folder / operator_metadata.SCHEMAS / operator_metadata.below(paths[-1])
    with _named(path):
        return parse_families(_content(path, COLUMNS_UNKNOWN))


def _ordered(stores: tuple[Store, ...]) -> tuple[Store, ...]:
    """In the order of the commit log. Raises PreconditionError for stores without a name in it."""
    by_name = {store.name: store for store in stores}
    for names in ((DEFAULT_STORE,), JOIN_STORES):
        if by_name.keys() == {*names}:
            return tuple(by_name[name] for name in names)
    raise PreconditionError(f"stores {', '.join(by_name)}: expected one, or those of a join")


def _schema(operator: Path, store: str) -> tuple[Columns, Columns]:
    first = operator / "0"
    path = (first if store == DEFAULT_STORE else first / store) / SCHEMA
    with _named(path):
        return parse_schema(_content(path, COLUMNS_UNKNOWN))


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """The parsers of schemas do not know the name of the file."""
    try:
        yield
    except IntegrityError as error:
        raise IntegrityError(f"{path}: {error}") from error


def _content(path: Path, without: str) -> bytes:
    """Raises PreconditionError if the file is missing. `without`: the consequence."""
    try:
        return read_bytes(path)
    except FileNotFoundError:
        raise PreconditionError(f"{path}: missing, so {without}") from None
    except OSError as error:
        raise IntegrityError(f"{path} is not readable: {error}") from error
