"""A query checkpoint as Spark lays it out in a folder: its id, logs, stores, and the provider that its logs name."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rhino.errors import IntegrityError, InvalidRequestError, PreconditionError, UnknownError
from rhino.ids import StoreId, StoreVersion, Version
from spark_connector.conf import STREAMING

PROVIDER_KEY = f"{STREAMING}.stateStore.providerClass"
FORMAT_KEY = f"{STREAMING}.stateStore.checkpointFormatVersion"
DEFAULT_STORE = "default"
# SymmetricHashJoinStateManager.allStateStoreNames: the order of a join's ids in the commit log.
JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)


@dataclass(frozen=True, slots=True)
class Logged:
    """The newest committed batch, and the versions of the stores that it names."""

    batch_id: int
    versions: tuple[StoreVersion, ...]


class QueryCheckpoint:
    """Raises UnknownError for a folder that is no query checkpoint, IntegrityError for logs that cannot be read."""

    def __init__(self, folder: Path) -> None:
        if "://" in str(folder) or str(folder).startswith(("rhino:", "hdfs:", "s3a:")):
            raise InvalidRequestError(
                f"{folder}: must be a folder; mount the file system, or copy the checkpoint first"
            )
        self.folder = folder
        try:
            self.job = str(json.loads((folder / "metadata").read_text())["id"])
        except FileNotFoundError:
            raise UnknownError(f"{folder}: no query checkpoint (it has no file `metadata`)") from None
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"{folder / 'metadata'}: not readable: {error}") from error

    def store_folder(self, store: StoreId) -> Path:
        folder = self.folder / "state" / str(store.operator) / str(store.partition)
        return folder if store.store == DEFAULT_STORE else folder / store.store

    # ---- logs

    def _numbers(self, log: str) -> list[int]:
        folder = self.folder / log
        return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.is_dir() else []

    def newest_offset(self) -> int:
        """Raises PreconditionError when there is none."""
        numbers = self._numbers("offsets")
        if not numbers:
            raise PreconditionError(
                f"{self.folder}: no batch has begun; start the query with the other provider at once"
            )
        return numbers[-1]

    def provider(self) -> str:
        """The state store provider class that the next run will use."""
        batch = self.newest_offset()
        return str(_conf(_offset_lines(self._offset(batch)))[PROVIDER_KEY])

    def logged(self) -> Logged:
        """Raises PreconditionError without a committed batch, without state, and for checkpoint format 1."""
        numbers = self._numbers("commits")
        if not numbers:
            raise PreconditionError(f"{self.folder}: no batch is committed, so there is no state to take over")
        path = self.folder / "commits" / str(numbers[-1])
        ids = _state_ids(path)
        if not ids:
            self._refuse_without_ids(numbers[-1])
        versions = tuple(
            StoreVersion(StoreId(self.job, int(operator), partition, name), Version(numbers[-1] + 1, checkpoint_id))
            for operator, partitions in sorted(ids.items(), key=lambda item: int(item[0]))
            for partition, names in enumerate(partitions)
            for name, checkpoint_id in zip(_store_names(names, path), names, strict=True)
        )
        return Logged(numbers[-1], versions)

    def _refuse_without_ids(self, batch: int) -> None:
        if not (self.folder / "state").is_dir():
            raise PreconditionError(f"{self.folder}: batch {batch} names no state: no operator has any")
        raise PreconditionError(
            f"{self.folder}: batch {batch} names no checkpoint ids: this checkpoint is of format 1. Its file names are "
            "used again by retries, so a late task could have overwritten another's version, and Rhino keeps immutable "
            f"files only. The way out: start the query from a new checkpoint with {FORMAT_KEY}=2"
        )

    def check_quiet(self, quiet_s: float) -> None:
        """Raises PreconditionError when a log changed less than `quiet_s` seconds ago: a driver may be at it."""
        newest = max(
            (p.stat().st_mtime for log in ("offsets", "commits") for p in (self.folder / log).iterdir()), default=0
        )
        age_s = time.time() - newest
        if age_s < quiet_s:
            raise PreconditionError(
                f"{self.folder}: its logs changed {age_s:.0f} s ago, a driver may be running it. Stop it and try "
                f"again after {quiet_s:.0f} s (--quiet-s)"
            )

    # ---- the provider

    def _offset(self, batch: int) -> Path:
        return self.folder / "offsets" / str(batch)

    def rewrite_provider(self, old: str, new: str) -> Path:
        """Makes every offset log entry name `new` for `old`, the newest last: it decides. Returns the backup's folder.

        Hadoop's checksum files of the entries go: they would be wrong, and without them nothing is compared.
        """
        backup = self.folder / f"offsets.backup-{time.time_ns()}"
        shutil.copytree(self.folder / "offsets", backup)
        for batch in self._numbers("offsets"):
            path = self._offset(batch)
            lines = _offset_lines(path)
            fields = json.loads(lines[1])
            if fields["conf"].get(PROVIDER_KEY) != old:
                continue
            fields["conf"][PROVIDER_KEY] = new
            lines[1] = json.dumps(fields, separators=(",", ":"))
            replace_file(path, "\n".join(lines).encode())
        return backup


def replace_file(path: Path, content: bytes) -> None:
    """Whole or not at all, and on disk when it returns."""
    temporary = path.with_name(f".{path.name}.rhino.tmp")
    with temporary.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # before: a checksum that does not match stops Spark
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _offset_lines(path: Path) -> list[str]:
    lines = path.read_text().split("\n")
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise IntegrityError(f"{path}: not an entry of Spark's offset log")
    return lines


def _conf(lines: list[str]) -> dict[str, Any]:
    try:
        conf: dict[str, Any] = json.loads(lines[1])["conf"]
        return {PROVIDER_KEY: "", **conf}
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"an offset log entry has no readable settings: {error}") from error


def _state_ids(path: Path) -> dict[str, list[list[str]]]:
    version, _, text = path.read_text().partition("\n")
    try:
        return dict(json.loads(text).get("stateUniqueIds") or {}) if version.strip() != "v1" else {}
    except (ValueError, AttributeError, TypeError) as error:
        raise IntegrityError(f"{path}: not an entry of Spark's commit log: {error}") from error


def _store_names(ids: list[str], path: Path) -> tuple[str, ...]:
    if len(ids) == 1:
        return (DEFAULT_STORE,)
    if len(ids) == len(JOIN_STORES):
        return JOIN_STORES
    raise IntegrityError(f"{path}: {len(ids)} stores in one partition of an operator: expected 1 or {len(JOIN_STORES)}")
