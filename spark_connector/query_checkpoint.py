"""A query checkpoint on a local or mounted file system: its id, logs and stores, and the provider in it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rhino_core import folder as files
from rhino_core.errors import IntegrityError, InvalidRequestError, PreconditionError, UnknownError
from rhino_core.foreign import numbers, read_json, read_text, reading
from rhino_core.ids import StoreId, StoreVersion, Version
from spark_connector.conf import STREAMING
from spark_connector.query_logs import CommittedBatch, Logged, QueryLogs, commit_entry

PROVIDER_KEY = f"{STREAMING}.stateStore.providerClass"
FORMAT_KEY = f"{STREAMING}.stateStore.checkpointFormatVersion"
DEFAULT_STORE = "default"
MODE = 0o666  # of a file that is replaced, less the umask, as of one that Spark writes
# SymmetricHashJoinStateManager.allStateStoreNames: the order of a join's ids in the commit log.
JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)


class QueryCheckpoint:
    """A query checkpoint in a folder.

    Raises InvalidRequestError for a URI, UnknownError for any folder but a query checkpoint, and IntegrityError for
    unreadable logs.
    """

    def __init__(self, folder: Path) -> None:
        if "://" in str(folder) or str(folder).startswith(("rhino:", "hdfs:", "s3a:")):
            raise InvalidRequestError(
                f"{folder}: must be a folder; mount the file system, or copy the checkpoint first"
            )
        self.folder = folder
        try:
            fields = read_json(folder / "metadata")
        except FileNotFoundError:
            raise UnknownError(
                f"{folder}: no query checkpoint: it has no file `metadata`; give the checkpointLocation of the query"
            ) from None
        except OSError as error:
            raise UnknownError(f"{folder}: no query checkpoint: {error.strerror}") from error
        with reading(folder / "metadata"):
            self.job = str(fields["id"])

    def store_folder(self, store: StoreId) -> Path:
        folder = self.folder / "state" / str(store.operator) / str(store.partition)
        return folder if store.store == DEFAULT_STORE else folder / store.store

    # ---- logs

    def batches(self, log: str) -> list[int]:
        """Returns the batches in the log "offsets" or "commits", in order."""
        return numbers(self.folder / log)

    def committed(self, batch: int) -> CommittedBatch:
        """Reads an entry of the commit log. Without checkpoint ids, as in format 1, `ids` is empty."""
        path = self.folder / "commits" / str(batch)
        with reading(f"commit log entry {path}"):
            return commit_entry(batch, _text(path))

    def logs(self) -> QueryLogs:
        """Reads both logs."""
        commits = {batch: self.committed(batch) for batch in self.batches("commits")}
        return QueryLogs(self.job, frozenset(self.batches("offsets")), commits)

    def newest_offset(self) -> int:
        """Returns the newest batch in the offset log. Raises PreconditionError when there is none."""
        numbers = self.batches("offsets")
        if not numbers:
            raise PreconditionError(
                f"{self.folder}: no batch has begun, so there is no state; start the query with the other provider"
            )
        return numbers[-1]

    def provider(self) -> str:
        """Returns the state store provider class of the next run."""
        return str(self.settings()[PROVIDER_KEY])

    def has_state_of(self, batch: int) -> bool:
        """Whether the folder has files of this batch's state at the places of Spark's providers."""
        names = f"{batch + 1}[_.]*"
        return any(next(self.folder.glob(f"state/*/*/{store}{names}"), None) is not None for store in ("", "*/"))

    def newest_commit(self) -> int:
        """Returns the newest committed batch. Raises PreconditionError without one, and for a query without state."""
        numbers = self.batches("commits")
        if not numbers:
            raise PreconditionError(f"{self.folder}: no batch is committed, so there is no state to take over")
        if not (self.folder / "state").is_dir():
            raise PreconditionError(
                f"{self.folder}: batch {numbers[-1]} names no state: the query has no stateful operator"
            )
        return numbers[-1]

    def fingerprint(self) -> tuple[object, ...]:
        """Returns a value that changes with each run of the query: the batches and the newest entries of its logs."""
        logs = [(log, self.batches(log)) for log in ("offsets", "commits")]
        return tuple(
            (tuple(batches), (self.folder / log / str(batches[-1])).read_bytes() if batches else b"")
            for log, batches in logs
        )

    def check_unchanged(self, before: tuple[object, ...]) -> None:
        """Raises PreconditionError when the fingerprint is no longer `before`."""
        if self.fingerprint() != before:
            raise PreconditionError(
                f"{self.folder}: the checkpoint changed meanwhile: a driver runs this query. Stop it and try again"
            )

    def logged(self, number: int | None = None) -> Logged:
        """Returns the versions of a committed batch; None: the newest one.

        Raises PreconditionError without such a batch, without state, and for checkpoint format 1.
        """
        newest = self.newest_commit()
        if number is not None and number not in (found := self.batches("commits")):
            raise PreconditionError(
                f"{self.folder}: batch {number} is not in the commit log, which has {found[0]} to {found[-1]}"
            )
        batch = self.committed(newest if number is None else number)
        if not batch.ids:
            self._refuse_without_ids(batch.batch)
        versions = tuple(
            StoreVersion(StoreId(self.job, operator, partition, name), Version(batch.batch + 1, checkpoint_id))
            for (operator, partition), ids in batch.ids.items()
            for name, checkpoint_id in zip(self._store_names(ids, batch.batch), ids, strict=True)
        )
        return Logged(batch.batch, versions)

    def _store_names(self, ids: Collection[str], batch: int) -> tuple[str, ...]:
        if len(ids) == 1:
            return (DEFAULT_STORE,)
        if len(ids) == len(JOIN_STORES):
            return JOIN_STORES
        raise IntegrityError(
            f"commit log entry {self.folder / 'commits' / str(batch)}: {len(ids)} stores in one partition of an "
            f"operator: expected 1 or {len(JOIN_STORES)}"
        )

    def _refuse_without_ids(self, batch: int) -> None:
        raise PreconditionError(
            f"{self.folder}: batch {batch} names no checkpoint ids: this checkpoint is of format 1. In that format a "
            "late task can overwrite a version, and Rhino stores immutable files only. `rhino adopt --to-format 2` "
            "converts the newest version of a stopped query"
        )

    def check_idle(self, idle_s: float) -> None:
        """Raises PreconditionError when a log changed less than `idle_s` seconds ago: a driver may be running it."""
        newest = max(
            (p.stat().st_mtime for log in ("offsets", "commits") for p in (self.folder / log).iterdir()), default=0
        )
        age_s = time.time() - newest
        if age_s < idle_s:
            raise PreconditionError(
                f"{self.folder}: the logs changed {age_s:.0f} s ago, so a driver may be running the query. Stop it and "
                f"try again after {idle_s:.0f} s"
            )

    # ---- changes

    def settings(self) -> dict[str, Any]:
        """Returns the settings for the next run from the newest offset log entry."""
        lines = _offset_lines(self._offset(self.newest_offset()))
        with reading("an offset log entry"):
            return {PROVIDER_KEY: "", **json.loads(lines[1])["conf"]}

    def _offset(self, batch: int) -> Path:
        return self.folder / "offsets" / str(batch)

    def back_up(self) -> Path:
        """Copies both logs and `metadata` to a new folder in the checkpoint, and returns it."""
        backup = self.folder / f"backup-{time.time_ns()}"
        for log in ("offsets", "commits"):
            if (self.folder / log).is_dir():
                shutil.copytree(self.folder / log, backup / log)
        shutil.copy2(self.folder / "metadata", backup / "metadata")
        return backup

    def commit_with_ids(self, batch: int, ids: Mapping[int, Sequence[Sequence[str]]]) -> str:
        """Returns the text of a commit log entry as Spark writes it in format 2.

        `ids`: by operator, for each partition, the checkpoint ids of its stores. Other fields keep their values.
        """
        path = self.folder / "commits" / str(batch)
        version, _, body = _text(path).partition("\n")
        with reading(f"commit log entry {path}"):
            fields = json.loads(body or "{}") | {"stateUniqueIds": {str(operator): ids[operator] for operator in ids}}
        return f"{'v2' if version.strip() == 'v1' else version.strip()}\n{json.dumps(fields, separators=(',', ':'))}"

    def replace_commit(self, batch: int, text: str) -> None:
        replace_file(self.folder / "commits" / str(batch), text.encode())

    def rewrite_provider(self, old: str, new: str) -> None:
        """Replaces provider `old` by `new` in all offset log entries.

        The newest entry decides, and is written last. Hadoop's checksum files of the entries are deleted: they would no
        longer match, and without them nothing is compared.
        """
        for batch in self.batches("offsets"):
            path = self._offset(batch)
            lines = _offset_lines(path)
            with reading(f"offset log entry {path}"):
                fields = json.loads(lines[1])
                if fields["conf"].get(PROVIDER_KEY) != old:
                    continue
                fields["conf"][PROVIDER_KEY] = new
            lines[1] = json.dumps(fields, separators=(",", ":"))
            replace_file(path, "\n".join(lines).encode())


def replace_file(path: Path, content: bytes) -> None:
    """Replaces the file atomically. It is on disk when the function returns."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # first: Spark refuses a checksum that does not match
    files.replace_file(path, content, mode=MODE)


def _offset_lines(path: Path) -> list[str]:
    lines = _text(path).split("\n")
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise IntegrityError(f"{path}: not an entry of Spark's offset log")
    return lines


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read: {error}") from error
