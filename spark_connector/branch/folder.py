"""Copies what a new query needs of another query's checkpoint. The other query may be running.

The copy has an id of its own, so both are different queries for everybody. The state itself is not here.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from rhino_core import failpoints
from rhino_core.errors import AlreadyThereError, PreconditionError
from spark_connector.branch import schema_paths
from spark_connector.modify.jars import JarCode
from spark_connector.query_checkpoint import QueryCheckpoint

STATE_FILES = (".zip", ".changelog", ".sst", ".log", ".delta", ".snapshot", ".crc", ".tmp")
ROUNDS = 100  # of copying a log that a driver writes meanwhile


class HiddenFolder:
    """A hidden folder beside `target`, which becomes `target` at the end. A context manager: what is left is deleted.

    `job`: the id of the new query. `work`: the hidden folder. Raises AlreadyThereError if `target` exists and is no
    empty folder, and PreconditionError if it lies within `source`, the other checkpoint.
    """

    def __init__(self, source: QueryCheckpoint, target: Path) -> None:
        self.job = str(uuid.uuid4())
        self.target = target.absolute()
        self._source = source
        self.work = self.target.with_name(f".{self.target.name}.rhino-branch-{self.job}")
        if self.target.exists() and (not self.target.is_dir() or any(self.target.iterdir())):
            raise AlreadyThereError(f"{self.target}: is there already; give a folder that does not exist")
        if source.folder.absolute() in self.target.parents:
            raise PreconditionError(f"{self.target}: lies within the checkpoint that it is a branch of")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def make(self) -> None:
        """Makes the hidden folder, with an id of its own."""
        self.work.mkdir(parents=True)
        fields = json.loads((self._source.folder / "metadata").read_text()) | {"id": self.job}
        (self.work / "metadata").write_text(json.dumps(fields, separators=(",", ":")))

    def finish(self) -> Path:
        """Gives the folder its name. Raises AlreadyThereError if something else has it by now."""
        _sync_all(self.work)
        failpoints.hit("branch.name.before")
        try:
            self.work.rename(self.target)  # replaces an empty folder only
        except OSError as error:
            raise AlreadyThereError(f"{self.target}: {error.strerror}") from error
        failpoints.hit("branch.name.after")
        return self.target


class BranchFolder(HiddenFolder):
    """That of a branch after a batch. Raises PreconditionError also for what cannot be branched."""

    def __init__(self, source: QueryCheckpoint, target: Path, batch: int) -> None:
        super().__init__(source, target)
        self._batch = batch
        schema_paths.check_renamed(source.folder, self.target, batch)

    def fill(self) -> None:
        """Copies the logs up to the batch, and the offsets of the next one, so that it has the same rows.

        Raises PreconditionError if entries of the batch vanish meanwhile, and as `schema_paths.rename`.
        """
        source, work = self._source.folder, self.work
        self.make()
        for log, last in (("commits", self._batch), ("offsets", self._batch + 1)):
            (work / log).mkdir()
            for number in self._source.batches(log):
                if number <= last:
                    _copy(source / log / str(number), work / log / str(number))
            if not (work / log / str(self._batch)).exists():
                raise PreconditionError(f"{source / log}: batch {self._batch} has been removed meanwhile; try again")
        _copy_all(source / "sources", work / "sources")
        _copy_all(source / "state", work / "state")
        schema_paths.rename(source, work, self.target, self._batch)
        self._copy_modifications(source / "modifications", work / "modifications")

    def copy_described(self, other: QueryCheckpoint) -> Path:
        """Copies what another checkpoint says of its operators until the batch into a folder of its own, for `target`.

        Returns that folder, in `work`. Raises as `schema_paths.rename`.
        """
        copy = self.work / "described"
        _copy_all(other.folder / "state", copy / "state")
        schema_paths.rename(other.folder, copy, self.target, self._batch)
        return copy

    def _copy_modifications(self, source: Path, work: Path) -> None:
        """Copies those that are in force for the batch. Those under way stay with the other query."""
        bound = {int(path.name): path for path in _numbered(source / "bindings")}
        bindings = {batch: path for batch, path in bound.items() if batch <= self._batch}
        records = {number for path in bindings.values() for number in json.loads(path.read_text())["records"]}
        returned = [path for path in _numbered(source / "returns") if int(path.name) in bindings]
        figures = [path for path in _numbered(source / "figures") if int(path.name) <= self._batch]
        decided = [path for path in _numbered(source / "outcomes") if int(path.name) in records]
        written = [path for path in _numbered(source / "records") if int(path.name) in records]
        tables = [path for path in _numbered_own(source / "tables") if int(path.name) in records]
        jars = [source / "jars" / name for name in sorted(filter(None, map(_jar_of, written)))]
        for path in {path.parent for path in (*tables, *jars)}:  # as they are made: only the driver's user reads them
            (work / path.name).mkdir(mode=0o700, parents=True)
        for path in jars:
            _copy_own(path, work / "jars" / path.name)
        for path in (*tables, *written, *decided, *bindings.values(), *returned, *figures):
            target = work / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(path, target)


def _numbered(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else iter(())


def _numbered_own(folder: Path) -> list[Path]:
    """Raises PreconditionError for a user who may not read them."""
    try:
        return list(_numbered(folder))
    except PermissionError as error:
        raise _not_ours(folder) from error


def _not_ours(folder: Path) -> PreconditionError:
    return PreconditionError(
        f"{folder}: only the user of the query's driver reads its {folder.name}; run the command as that user"
    )


def _jar_of(record: Path) -> str | None:
    """The file name of the jar that a record needs."""
    jar = json.loads(record.read_text()).get("jar")
    return jar and f"{JarCode.from_fields(jar).sha256}.jar"


def _copy_own(source: Path, target: Path) -> None:
    """Raises PreconditionError for a user who may not read it. One that is missing is missed by the next driver."""
    try:
        if not target.exists() and _copy(source, target):
            target.chmod(0o600)
    except PermissionError as error:
        raise _not_ours(source.parent) from error


def _copy(source: Path, target: Path) -> bool:
    """Copies one file. Returns false if it has been removed meanwhile."""
    failpoints.hit("branch.file.before")
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError:
        return False
    failpoints.hit("branch.file.after")
    return True


def _copy_all(source: Path, target: Path) -> None:
    """Copies all files but those of state, until nothing new appears and nothing vanishes meanwhile."""
    for _ in range(ROUNDS):
        found = [path for path in source.rglob("*") if path.is_file() and not path.name.endswith(STATE_FILES)]
        news = [path for path in found if not (target / path.relative_to(source)).exists()]
        for path in news:
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
        if not news:
            return
        for path in news:
            _copy(path, target / path.relative_to(source))
    raise PreconditionError(f"{source}: a driver writes there all the time; try again")


def _sync_all(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
