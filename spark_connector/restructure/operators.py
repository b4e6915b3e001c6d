"""The stateful operators of a query, as its checkpoint describes them.

Spark writes the files below `state/<operator>` when it plans the first batch of a run. So the checkpoint of a query
that has only begun has them, too.
"""

from __future__ import annotations

import io
import json
import struct
from dataclasses import dataclass
from pathlib import Path

from rhino_core.errors import IntegrityError, PreconditionError
from spark_connector.query_checkpoint import DEFAULT_STORE, JOIN_STORES
from spark_connector.restructure.columns import Columns, parse_columns, shown

METADATA = "_metadata/metadata"
SCHEMA = "_metadata/schema"
SCHEMA_VERSION = "v2"


@dataclass(frozen=True, slots=True)
class Store:
    """A store of each partition of an operator. `partitions`: what Spark plans; an operator without keys uses one."""

    name: str
    partitions: int
    prefix_columns: int
    key: Columns
    value: Columns


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator. `number`: Spark's id in the plan, from 0, nearest to the sink. `name`: its kind in Spark."""

    number: int
    name: str
    stores: tuple[Store, ...]

    @property
    def partitions(self) -> int:
        return self.stores[0].partitions

    @property
    def partitions_used(self) -> int:
        """An operator whose key has no columns, such as an aggregation of everything, runs in one partition."""
        return self.partitions if self.stores[0].key else 1

    def __str__(self) -> str:
        first = self.stores[0]
        stores = f", {len(self.stores)} stores" if len(self.stores) > 1 else ""
        return f"{self.number} {self.name} (key: {shown(first.key)}; value: {shown(first.value)}{stores})"


def read_operators(folder: Path) -> tuple[Operator, ...]:
    """Returns the operators of the checkpoint `folder`, by number.

    Raises PreconditionError for a checkpoint without them, and for operators that name files by full paths
    (transformWithState, and joins with state format 3 or 4). Raises IntegrityError for files that cannot be read.
    """
    state = folder / "state"
    numbers = sorted(int(path.name) for path in state.iterdir() if path.name.isdigit()) if state.is_dir() else []
    if not numbers:
        raise PreconditionError(f"{folder}: describes no stateful operator; no batch of this query has been planned")
    if numbers != [*range(len(numbers))]:
        raise IntegrityError(f"{state}: operators {', '.join(map(str, numbers))}: some are missing")
    return tuple(_operator(state / str(number), number) for number in numbers)


def _operator(folder: Path, number: int) -> Operator:
    if (folder / "_metadata" / "v2").exists():
        raise PreconditionError(
            f"{folder}: this operator (transformWithState, or a join with spark.sql.streaming.join.stateFormatVersion "
            "3 or 4) names files of its checkpoint by their full paths, so its query cannot be restructured yet"
        )
    path = folder / METADATA
    try:
        version, _, body = path.read_text().partition("\n")
        if version.strip() != "v1":
            raise ValueError(f"version {version!r}, expected v1")
        fields = json.loads(body)
        info, stores = fields["operatorInfo"], fields["stateStoreInfo"]
        if info["operatorId"] != number or not stores:
            raise ValueError("it describes another operator, or no store")
        found = tuple(
            Store(s["storeName"], int(s["numPartitions"]), int(s["numColsPrefixKey"]), *_schema(folder, s["storeName"]))
            for s in stores
        )
        return Operator(number, str(info["operatorName"]), _ordered(found))
    except FileNotFoundError:
        raise PreconditionError(
            f"{path}: missing, so operator {number} is not described. Run one more batch with Spark 4.2 or later"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path}: not readable: {error}") from error


def _ordered(stores: tuple[Store, ...]) -> tuple[Store, ...]:
    """In the order of the commit log. Raises PreconditionError for stores that it cannot name."""
    by_name = {store.name: store for store in stores}
    for names in ((DEFAULT_STORE,), JOIN_STORES):
        if by_name.keys() == {*names}:
            return tuple(by_name[name] for name in names)
    raise PreconditionError(f"stores {', '.join(by_name)}: expected one, or those of a join")


def schema_file(operator: Path, store: str) -> Path:
    """Returns the file with the columns of a store. `operator`: the folder of the operator."""
    first = operator / "0"
    return (first if store == DEFAULT_STORE else first / store) / SCHEMA


def _schema(operator: Path, store: str) -> tuple[Columns, Columns]:
    path = schema_file(operator, store)
    try:
        return parse_schema(path.read_bytes())
    except FileNotFoundError:
        raise PreconditionError(f"{path}: missing, so the columns of the state are not known") from None
    except (OSError, IntegrityError) as error:
        raise IntegrityError(f"{path}: not readable: {error}") from error


def parse_schema(data: bytes) -> tuple[Columns, Columns]:
    """Returns the columns of the key and of the value. Raises IntegrityError.

    The format is that of Java's DataOutputStream: the version, and twice a number of texts that belong together.
    """
    source = io.BytesIO(data)
    try:
        if (version := _text(source)) != SCHEMA_VERSION:
            raise IntegrityError(f"a schema of version {version!r}, expected {SCHEMA_VERSION!r}")
        key, value = (parse_columns("".join(_text(source) for _ in range(_number(source, 4)))) for _ in range(2))
    except (struct.error, UnicodeDecodeError) as error:
        raise IntegrityError(f"a schema of state that ends too early, or has no text: {error}") from error
    return key, value


def _number(source: io.BytesIO, size: int) -> int:
    number: int = struct.unpack(">H" if size == 2 else ">i", source.read(size))[0]
    return number


def _text(source: io.BytesIO) -> str:
    length = _number(source, 2)
    data = source.read(length)
    if len(data) != length:
        raise struct.error("a text ends too early")
    return data.decode()
