"""Finds the stores of a checkpoint whose commit log does not name them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rhino_core.errors import IntegrityError, LostError
from rhino_core.foreign import numbers, read_text, reading
from rhino_core.ids import StoreId
from spark_connector.query_checkpoint import DEFAULT_STORE, JOIN_STORES, QueryCheckpoint

# The first is what Spark uses when it is set, after a repartitioning for example.
PARTITIONS_KEYS = ("spark.sql.streaming.internal.stateStore.partitions", "spark.sql.shuffle.partitions")


def former_stores(checkpoint: QueryCheckpoint) -> list[StoreId]:
    """Returns the stores by operator and partition, those of a join in the order of the commit log.

    An operator has as many partitions as the offset log says, or one (an aggregation without keys, a limit). Raises
    LostError when folders are missing, and IntegrityError for stores of no known operator.
    """
    expected = _partitions(checkpoint)
    stores = []
    for operator in _numbered(checkpoint.folder / "state"):
        folder = checkpoint.folder / "state" / str(operator)
        present = [number for number in _numbered(folder) if number < expected]
        if present not in ([0], [*range(expected)]):
            missing = sorted({*range(expected)} - {*present})
            raise LostError(f"{folder}: {len(missing)} of {expected} partitions are missing, such as {missing[0]}")
        for partition in present:
            names = _names(folder / str(partition))
            stores += [StoreId(checkpoint.job, operator, partition, name) for name in names]
    return stores


def prefix_columns(checkpoint: QueryCheckpoint, operator: int) -> dict[str, int]:
    """Returns, by store, how many columns of the key are its prefix. Raises LostError without operator metadata."""
    path = checkpoint.folder / "state" / str(operator) / "_metadata" / "metadata"
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise LostError(
            f"{path}: missing, so the stores of operator {operator} are not described. Run one more batch with Spark "
            "4.2 or later on the former provider, then adopt again"
        ) from None
    except OSError as error:
        raise IntegrityError(f"{path} is not readable: {error}") from error
    with reading(path):
        version, _, body = text.partition("\n")
        if version.strip() != "v1":
            raise ValueError(f"version {version!r}, expected v1")
        return {str(item["storeName"]): int(item["numColsPrefixKey"]) for item in json.loads(body)["stateStoreInfo"]}


def _partitions(checkpoint: QueryCheckpoint) -> int:
    settings = checkpoint.settings()
    for key in PARTITIONS_KEYS:
        if key in settings:
            with reading(f"{checkpoint.folder}: {key} in the offset log"):
                return int(settings[key])
    raise IntegrityError(f"{checkpoint.folder}: the offset log does not name {PARTITIONS_KEYS[-1]}")


def _numbered(folder: Path) -> list[int]:
    return [number for number in numbers(folder) if (folder / str(number)).is_dir()]


def _names(folder: Path) -> Sequence[str]:
    below = {path.name for path in folder.iterdir() if path.is_dir()} - {"SSTs", "logs", "_metadata"}
    if not below:
        return (DEFAULT_STORE,)
    if below == {*JOIN_STORES}:
        return JOIN_STORES
    raise IntegrityError(f"{folder}: stores {', '.join(sorted(below))}: expected one, or those of a join")
