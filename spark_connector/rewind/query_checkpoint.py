"""A query checkpoint on a local (or mounted) file system: reads its logs, moves their entries away."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlparse

from rhino.errors import IntegrityError, InvalidRequestError, PreconditionError
from spark_connector.rewind.plan import CommittedBatch, QueryLogs, RewindPlan
from spark_connector.rewind.sink_log import FOLDER, entries_to_move

_BATCH = re.compile(r"\d+")


def local_path(text: str) -> Path:
    """A plain path or a file: URI. Raises InvalidRequestError for other file systems, with the way out."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text)
    if scheme is None:
        return Path(text)
    if scheme[1].lower() != "file":
        raise InvalidRequestError(
            f"{text}: only folders that this machine sees as files can be rewound (a path or a file: URI). Copy "
            f"`metadata`, `offsets` and `commits` from {scheme[1]} into a local folder, run `rhino rewind --dry-run "
            "--json` on that, and move away the files it names in the order it names them"
        )
    return Path(unquote(urlparse(text).path))


class QueryCheckpoint:
    """The folder that a query has as its `checkpointLocation`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def job(self) -> str:
        """The query id. Raises InvalidRequestError when the folder is no query checkpoint."""
        try:
            return str(json.loads((self.folder / "metadata").read_text())["id"])
        except (OSError, ValueError, KeyError) as error:
            raise InvalidRequestError(
                f"{self.folder} is no query checkpoint: its file `metadata`, which names the query, cannot be read "
                f"({error}); give the query's checkpointLocation"
            ) from error

    def logs(self) -> QueryLogs:
        """Raises IntegrityError for a commit log entry that cannot be read."""
        commits = {number: self._commit(number) for number in self._batches("commits")}
        return QueryLogs(self.job(), frozenset(self._batches("offsets")), commits)

    def _batches(self, log: str) -> list[int]:
        folder = self.folder / log
        return [int(path.name) for path in folder.iterdir() if _BATCH.fullmatch(path.name)] if folder.is_dir() else []

    def _commit(self, number: int) -> CommittedBatch:
        path = self.folder / "commits" / str(number)
        try:
            version, _, body = path.read_text().partition("\n")
            if version not in ("v1", "v2"):
                raise ValueError(f"log version {version!r}, expected v1 or v2")
            named = json.loads(body).get("stateUniqueIds") or {}
            ids = {
                (int(operator), partition): tuple(stores or ())
                for operator, partitions in named.items()
                for partition, stores in enumerate(partitions)
            }
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise IntegrityError(f"commit log entry {path} cannot be read: {error}") from error
        return CommittedBatch(number, ids)

    def files_of(self, plan: RewindPlan) -> list[Path]:
        """Files to move for the plan, in order; each after its hidden checksum, which may be absent."""
        names = [
            path
            for log, number in plan.moves
            for path in (self.folder / log / f".{number}.crc", self.folder / log / str(number))
        ]
        return [path for path in names if path.exists()]


def sink_log_files(output: Path, batch: int) -> list[Path]:
    """Entries of a file sink's log about later batches, with their hidden checksums. Raises PreconditionError, and
    InvalidRequestError when the folder has no such log."""
    folder = output / FOLDER
    if not folder.is_dir():
        raise InvalidRequestError(f"{output} is no output folder of a file sink: it has no {FOLDER}")
    names = entries_to_move([path.name for path in folder.iterdir()], batch)
    paths = [path for name in names for path in (folder / f".{name}.crc", folder / name)]
    return [path for path in paths if path.exists()]


def backup_name() -> str:
    """Of the folder beside the files that are moved."""
    return time.strftime("rhino-rewind-%Y%m%dT%H%M%SZ", time.gmtime())


def move_away(files: Iterable[Path], root: Path, backup: Path) -> None:
    """Renames the files one by one, keeping their paths below `root`.

    Raises PreconditionError when one cannot be moved: the others stay moved, and the command can be run again.
    """
    for path in files:
        target = backup / path.relative_to(root)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
        except OSError as error:
            raise PreconditionError(f"{path} cannot be moved to {target}: {error}; run the command again") from error
