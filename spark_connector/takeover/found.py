"""The content of a checkpoint to adopt: former provider and format, and the files of the newest committed version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rhino_core.errors import AlreadyThereError, LostError, PreconditionError
from rhino_core.ids import StoreId, StoreVersion
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.takeover import hdfs_state
from spark_connector.takeover.closure import closure_in
from spark_connector.takeover.files import StateFile, StoreFiles
from spark_connector.takeover.format1 import files_of_format_1
from spark_connector.takeover.former_stores import former_stores, prefix_columns

T = TypeVar("T")
R = TypeVar("R")
_NAMED_MAX = 3  # stores that an error names


@dataclass(frozen=True, slots=True)
class Found:
    """The state of a stopped query as its former provider left it. Reading it changed nothing.

    `kind`: provider and format, for people. `stores`: empty when Spark has to convert `unconverted` first.
    """

    kind: str
    provider: str
    batch: int
    needs_ids: bool
    stores: tuple[StoreFiles, ...]
    unconverted: tuple[StoreId, ...] = ()
    unconverted_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return self.unconverted_bytes + sum(store.size_bytes for store in self.stores)


def examine(checkpoint: QueryCheckpoint, to_format: int | None) -> Found:
    """Reads everything that can be checked without a change. `to_format`: 2 allows a conversion to this format.

    Raises AlreadyThereError, PreconditionError, and LostError or IntegrityError for missing and damaged files.
    """
    provider, batch = checkpoint.provider(), checkpoint.newest_commit()
    if provider == PROVIDER_CLASSES["provider"]:
        raise AlreadyThereError(
            f"{checkpoint.folder}: the checkpoint names Rhino's provider already; there is nothing to adopt"
        )
    if provider == PROVIDER_CLASSES["checkpoint"]:
        if to_format is None or checkpoint.committed(batch).ids:
            return _of_format_2(checkpoint, provider)
        stores = each(former_stores(checkpoint), lambda store: _in(checkpoint, checkpoint.folder, store, batch + 1))
        return Found("RocksDB, format 1", provider, batch, needs_ids=True, stores=tuple(stores))
    if provider == hdfs_state.HDFS_PROVIDER and to_format is not None:
        return _of_hdfs(checkpoint, provider, batch)
    if provider == hdfs_state.HDFS_PROVIDER:
        raise PreconditionError(
            f"{checkpoint.folder}: the checkpoint was made with the state store provider {provider}. `rhino adopt "
            "--to-format 2` converts its state"
        )
    raise PreconditionError(
        f"{checkpoint.folder}: the checkpoint was made with the state store provider {provider or 'of no name'}; only "
        f"state of {PROVIDER_CLASSES['checkpoint']} and {hdfs_state.HDFS_PROVIDER} can be adopted. Start the query "
        "from a new checkpoint"
    )


def converted(checkpoint: QueryCheckpoint, found: Found, work: Path, done: Callable[[int], None]) -> Found:
    """Returns `found` with all its files. They may be below `work`. Calls `done` with the number of stores so far."""
    if not found.unconverted:
        return found
    count = iter(range(1, len(found.unconverted) + 1))
    version = found.batch + 1
    hdfs_state.convert(checkpoint, found.unconverted, version, work, lambda _: done(next(count)))
    stores = each(found.unconverted, lambda store: _in(checkpoint, work, store, version))
    return Found(found.kind, found.provider, found.batch, needs_ids=True, stores=tuple(stores))


def each(items: Iterable[T], result_of: Callable[[T], R]) -> Sequence[R]:
    """Calls `result_of` for each item. If files are missing, raises one LostError with the cases."""
    results, missing, total = [], [], 0
    for item in items:
        total += 1
        try:
            results.append(result_of(item))
        except LostError as error:
            missing.append(str(error))
    if missing:
        listed = "\n".join(missing[:_NAMED_MAX])
        raise LostError(f"{len(missing)} of {total} stores do not open:\n{listed}" if total > 1 else listed)
    return results


def _in(checkpoint: QueryCheckpoint, root: Path, store: StoreId, version: int) -> StoreFiles:
    folder = root / checkpoint.store_folder(store).relative_to(checkpoint.folder)
    return files_of_format_1(folder, store, version)


def _of_format_2(checkpoint: QueryCheckpoint, provider: str) -> Found:
    def files(wanted: StoreVersion) -> StoreFiles:
        folder = checkpoint.store_folder(wanted.store)
        return StoreFiles(wanted, tuple(StateFile(entry, folder / entry.name) for entry in closure_in(folder, wanted)))

    logged = checkpoint.logged()
    stores = each(logged.versions, files)
    return Found("RocksDB, format 2", provider, logged.batch_id, needs_ids=False, stores=tuple(stores))


def _of_hdfs(checkpoint: QueryCheckpoint, provider: str, batch: int) -> Found:
    hdfs_state.check_tools()
    stores = former_stores(checkpoint)
    for operator in {store.operator for store in stores}:
        prefix_columns(checkpoint, operator)
    sizes = each(stores, lambda store: hdfs_state.former_bytes(checkpoint.store_folder(store), batch + 1))
    return Found("HDFS-backed", provider, batch, True, (), tuple(stores), sum(sizes))
