"""Operators, and checkpoints that describe them as Spark does."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from query_evolution.structure.columns import parse_columns
from query_evolution.structure.operators import Operator, Store
from query_evolution.structure.rebuilt import Origin
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import DEFAULT_STORE, PROVIDER_KEY, QueryCheckpoint

PARTITIONS = 2
SETTINGS = {
    PROVIDER_KEY: PROVIDER_CLASSES["provider"],
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.aggregation.stateFormatVersion": "2",
}


def schema(columns: str) -> str:
    """Spark's JSON for "k long, n integer?"; "?" is a column that may be null."""
    named = [column.split() for column in columns.split(", ") if column]
    fields = [
        {"name": name, "type": kind.rstrip("?"), "nullable": kind.endswith("?"), "metadata": {"note": columns}}
        for name, kind in named
    ]
    return json.dumps({"type": "struct", "fields": fields})


def schema_bytes(key: str, value: str, chunks: int = 1) -> bytes:
    """A schema file. `chunks`: into so many parts Spark divides a text that is too long for one."""
    texts = b"".join(_chunks(schema(text), chunks) for text in (key, value))
    return _utf("v2") + texts


def families_bytes(described: Mapping[str, str], encoder: str = "NoPrefixKeyStateEncoderSpec") -> bytes:
    """A schema file of column families, from texts such as "k long -> n long?" by name."""
    made = _utf("v3") + struct.pack(">i", len(described))
    for name, text in described.items():
        key, _, value = text.partition(" -> ")
        made += _utf(name) + struct.pack(">H", 0) + _chunks(schema(key), 1) + struct.pack(">H", 0)
        made += _chunks(schema(value), 1) + _chunks(json.dumps({"keyStateEncoderType": encoder}), 1)
        made += _chunks("{    }", 1)
    return made


def write_versioned(
    folder: Path,
    number: int,
    name: str,
    families: Mapping[str, str],
    *,
    batch: int = 0,
    root: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> None:
    """An operator whose metadata has versions, from `batch` on. `root`: how Spark names `folder`; None is "file:".

    `variables`: kinds of state variables by name, of transformWithState.
    """
    operator = folder / "state" / str(number)
    file = operator / "_stateSchema" / "default" / f"{batch}_schema"
    store = {
        "storeName": "default",
        "numColsPrefixKey": 0,
        "numPartitions": PARTITIONS,
        "stateSchemaFilePaths": [f"{root or f'file:{folder}'}/state/{number}/_stateSchema/default/{file.name}"],
    }
    properties: dict[str, object] = {"useVirtualColumnFamilies": True}
    if variables is not None:
        listed = [{"stateName": one, "stateVariableType": kind, "ttlEnabled": False} for one, kind in variables.items()]
        properties = {"timeMode": "NoTime", "outputMode": "Update", "stateVariables": listed}
    metadata = {
        "operatorInfo": {"operatorId": number, "operatorName": name},
        "stateStoreInfo": [store],
        "operatorPropertiesJson": json.dumps(properties),
    }
    for path, data in (
        (operator / "_metadata" / "v2" / str(batch), f"v2\n{json.dumps(metadata)}".encode()),
        (file, families_bytes(families)),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _chunks(text: str, count: int) -> bytes:
    size = -(-len(text) // count)
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return struct.pack(">i", len(parts)) + b"".join(map(_utf, parts))


def _utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def operators(*described: str, partitions: int = PARTITIONS) -> list[Operator]:
    """Operators from texts such as "dedupe: k long -> t timestamp"."""
    made = []
    for number, text in enumerate(described):
        name, _, columns = text.partition(": ")
        key, _, value = columns.partition(" -> ")
        store = Store(DEFAULT_STORE, partitions, 0, parse_columns(schema(key)), parse_columns(schema(value)))
        made.append(Operator(number, name, (store,)))
    return made


def write_operators(folder: Path, described: Iterable[str], partitions: int = PARTITIONS) -> None:
    """The files of Spark below `state`."""
    for number, text in enumerate(described):
        name, _, columns = text.partition(": ")
        key, _, value = columns.partition(" -> ")
        metadata = {
            "operatorInfo": {"operatorId": number, "operatorName": name},
            "stateStoreInfo": [{"storeName": DEFAULT_STORE, "numColsPrefixKey": 0, "numPartitions": partitions}],
        }
        operator = folder / "state" / str(number)
        for path, data in (
            (operator / "_metadata" / "metadata", f"v1\n{json.dumps(metadata)}".encode()),
            (operator / "0" / "_metadata" / "schema", schema_bytes(key, value)),
        ):
            path.parent.mkdir(parents=True)
            path.write_bytes(data)


def write_checkpoint(
    folder: Path,
    described: Sequence[str],
    *,
    batches: int = 3,
    sources: int = 1,
    job: str = "job-1",
    prefix: str = "",
) -> QueryCheckpoint:
    """A checkpoint with `batches` committed ones and one that is planned.

    Ids are "<prefix><operator>-<partition>-<batch>".
    """
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": job}))
    for batch in range(batches + 1):
        head = json.dumps({"batchWatermarkMs": 1000 * batch, "batchTimestampMs": 5000 + batch, "conf": SETTINGS})
        offsets = "\n".join([json.dumps({"offset": batch})] * sources)
        (folder / "offsets" / str(batch)).write_text(f"v1\n{head}\n{offsets}")
    for batch in range(batches):
        ids = {
            str(number): [[f"{prefix}{number}-{partition}-{batch}"] for partition in range(PARTITIONS)]
            for number in range(len(described))
        }
        fields = {"nextBatchWatermarkMs": 7, "stateUniqueIds": ids}
        (folder / "commits" / str(batch)).write_text(f"v2\n{json.dumps(fields)}")
    write_operators(folder, described)
    return QueryCheckpoint(folder)


def write_sketch(folder: Path, described: Sequence[str], *, sources: int = 1) -> Path:
    """A checkpoint of a query whose first batch has only been planned."""
    write_checkpoint(folder, described, batches=0, sources=sources)
    return folder


def write_rebuilt(folder: Path, described: Sequence[str], *, batches: int = 3, first: int = 0) -> QueryCheckpoint:
    """A checkpoint whose state was rebuilt for the query of `write_checkpoint`. Its ids begin with "r"."""
    checkpoint = write_checkpoint(folder, described, batches=batches, job="job-2", prefix="r")
    Origin("job-1", first, first + (first > 0)).write(folder)
    return checkpoint
