"""Copies a new query's part of another query's checkpoint. The other query may be running.

The copy has an id of its own, so both are different queries for everybody. The state itself is not here.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from query_evolution.branches import schema_paths
from query_evolution.modify.folder import ModificationFolder
from query_evolution.modify.jars import JarCode
from query_evolution.modify.record import Record
from rhino_core import failpoints
from rhino_core.errors import AccessDeniedError, AlreadyThereError, PreconditionError
from rhino_core.foreign import numbers, read_bytes, read_json, read_text
from spark_connector.facts import replace_file
from spark_connector.query_checkpoint import QueryCheckpoint

STATE_FILES = (".zip", ".changelog", ".sst", ".log", ".delta", ".snapshot", ".crc", ".tmp")
ROUNDS = 100  # of copying a log that a driver writes meanwhile


class HiddenFolder:
    """A hidden folder beside `target`, renamed to `target` at the end. A context manager: an unfinished folder is
    deleted.

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
        self.work.chmod(self._source.folder.stat().st_mode & 0o777)
        fields = read_json(self._source.folder / "metadata") | {"id": self.job}
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
    """The folder of a branch after a batch. Raises PreconditionError also for a checkpoint that cannot be branched."""

    def __init__(self, source: QueryCheckpoint, target: Path, batch: int) -> None:
        super().__init__(source, target)
        self._batch = batch
        schema_paths.check_renamed(source.folder, self.target, batch)

    def fill(self) -> None:
        """Copies the logs up to the batch, and the offsets of the next one, so it has the same rows.

        Raises PreconditionError if entries of the batch vanish meanwhile, and as `schema_paths.rename`.
        """
        source, work = self._source.folder, self.work
        self.make()
        for log, last in (("commits", self._batch), ("offsets", self._batch + 1)):
            _make_like(source / log, work / log)
            for number in self._source.batches(log):
                if number <= last:
                    copy_file(source / log / str(number), work / log / str(number))
            if not (work / log / str(self._batch)).exists():
                raise PreconditionError(f"{source / log}: batch {self._batch} has been removed meanwhile; try again")
        _copy_all(source / "sources", work / "sources")
        _copy_all(source / "state", work / "state")
        schema_paths.rename(source, work, self.target, self._batch)
        copy_modifications(self._source, work / "modifications", self._batch)

    def copy_described(self, other: QueryCheckpoint) -> Path:
        """Copies another checkpoint's descriptions of its operators until the batch into a folder of its own, for
        `target`.

        Returns the folder, in `work`. Raises as `schema_paths.rename`.
        """
        copy = self.work / "described"
        _copy_all(other.folder / "state", copy / "state")
        schema_paths.rename(other.folder, copy, self.target, self._batch)
        return copy


def copy_modifications(checkpoint: QueryCheckpoint, work: Path, batch: int) -> None:
    """Copies those in force for the batch. Those under way stay with the other query.

    Raises PreconditionError for files that other users have written, or could have: they would count as this user's.
    """
    source = checkpoint.folder / "modifications"
    try:
        _copy_own(checkpoint, source, work, batch)
    except (PermissionError, AccessDeniedError) as error:
        raise PreconditionError(
            f"{source}: only the user of the query's driver copies its modifications; run the command as that user "
            f"({error})"
        ) from error


def _copy_own(checkpoint: QueryCheckpoint, source: Path, work: Path, batch: int) -> None:
    bound = ModificationFolder(checkpoint.folder).read().bindings
    bindings = {first for first in bound if first <= batch}
    records = {number for first in bindings for number in bound[first].records}
    wanted = {
        "tables": records,
        "records": records,
        "outcomes": records,
        "bindings": bindings,
        "returns": bindings,
        "figures": {judged for judged in numbers(source / "figures") if judged <= batch},
    }
    jars = sorted({jar.sha256 for number in records if (jar := _jar_of(source, number))})
    names = [(kind, str(number)) for kind, chosen in wanted.items() for number in sorted(chosen)]
    for kind, name in (*(("jars", f"{jar}.jar") for jar in jars), *names):
        if (source / kind / name).exists():  # what is missing is missed by the next driver
            replace_file(work / kind / name, read_bytes(source / kind / name, own=True))


def _jar_of(modifications: Path, record: int) -> JarCode | None:
    """The jar of a record."""
    text = read_text(modifications / "records" / str(record), own=True)
    return Record.from_json(record, text).change.jar


def copy_file(source: Path, target: Path) -> bool:
    """Copies one file with its mode. Returns false if it has been removed meanwhile. Raises PreconditionError."""
    failpoints.hit("branch.file.before")
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _is_link(source) from error
        raise
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PreconditionError(f"{source}: is no regular file; remove it from the checkpoint")
        with target.open("xb") as out:
            os.fchmod(out.fileno(), stat.S_IMODE(found.st_mode) & 0o777)
            shutil.copyfileobj(file, out)
    failpoints.hit("branch.file.after")
    return True


def _is_link(path: Path) -> PreconditionError:
    return PreconditionError(
        f"{path}: is a link, and what it names may not belong to this checkpoint; put the file or folder itself there"
    )


def _found(source: Path) -> Iterator[Path]:
    """All files below, but those of state. Raises PreconditionError for a link."""
    if source.is_symlink():
        raise _is_link(source)
    for place, folders, names in os.walk(source):
        for path in (Path(place, name) for name in (*folders, *names)):
            if path.is_symlink():
                raise _is_link(path)
        yield from (Path(place, name) for name in names if not name.endswith(STATE_FILES))


def _make_like(source: Path, target: Path) -> None:
    """Makes a folder with the mode of `source`, and all above it like those above `source`."""
    if not target.is_dir():
        _make_like(source.parent, target.parent)
        target.mkdir()
        target.chmod(source.stat().st_mode & 0o777)


def _copy_all(source: Path, target: Path) -> None:
    """Copies all files but those of state, until nothing new appears and nothing vanishes meanwhile.

    Raises PreconditionError for a link.
    """
    for _ in range(ROUNDS):
        news = [path for path in _found(source) if not (target / path.relative_to(source)).exists()]
        if not news:
            return
        for path in news:
            copy = target / path.relative_to(source)
            _make_like(path.parent, copy.parent)
            copy_file(path, copy)
    raise PreconditionError(f"{source}: a driver writes there all the time; try again")


def _sync_all(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
