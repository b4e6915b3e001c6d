"""Makes a copy of a checkpoint that opens. The checkpoint itself is only read."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rhino_core.errors import AlreadyThereError, IntegrityError, NoSpaceError, PreconditionError
from spark_connector import operator_metadata
from spark_connector.doctor import checksums, content
from spark_connector.doctor.examine import Diagnosis, whole_look
from spark_connector.doctor.files import Files
from spark_connector.doctor.layout import Store
from spark_connector.doctor.query import Query
from spark_connector.doctor.tree import Folder
from spark_connector.doctor.versions import references, snapshot_problems
from worker_runtime.verify import changelog


@dataclass(frozen=True, slots=True)
class Repair:
    """`batch`: the newest committed one in the copy; -1: none. `copied`: files as they are. `written`: new contents.

    `consequences`: what happens when the query goes on from it, and what to check before.
    """

    batch: int
    copied: tuple[str, ...]
    written: dict[str, bytes]
    consequences: tuple[str, ...]


def plan_repair(diagnosis: Diagnosis, target: Path, named: str = "") -> Repair:
    """`named`: how Spark will name the copy, if not as the folder `target`. The diagnosis is of a whole look.

    Raises PreconditionError if no batch opens, if the state is not in the checkpoint, or if it is unclear how Spark
    would name the copy.
    """
    query, batch = diagnosis.query, diagnosis.opens
    if batch is None:
        raise PreconditionError(
            f"{query.files.tree.location}: no batch opens, so there is nothing to go on from; restore files from a "
            "backup, or start the query from a new checkpoint"
        )
    if query.in_rhino:
        raise PreconditionError(f"{query.files.tree.location}: its state is in Rhino; see `rhino rewind --help`")
    written = dict(_written(diagnosis, batch, target, named))
    kept = [name for name in _kept(query, batch) if name not in written]
    copied = [name for one in kept for name in (one, *_sums(query.files, one))]
    return Repair(batch, tuple(copied), written, tuple(_consequences(query, batch)))


def carry_out(repair: Repair, files: Files, target: Path) -> Diagnosis:
    """Writes the copy, `metadata` last, and examines it. Returns what was found there.

    Raises AlreadyThereError if the folder has content, NoSpaceError, and IntegrityError if the copy does not open.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise AlreadyThereError(f"{target}: exists and is not empty; give a new folder")
    if isinstance(files.tree, Folder) and target.absolute().is_relative_to(files.tree.folder.absolute()):
        raise PreconditionError(f"{target}: is within the checkpoint, which stays as it is; give a folder elsewhere")
    target.mkdir(parents=True, exist_ok=True)
    wanted, free = sum(files[name].size_bytes for name in repair.copied), shutil.disk_usage(target).free
    if wanted > free:
        raise NoSpaceError(f"{target}: {free} bytes are free, and the copy needs {wanted}")

    def copy(name: str) -> None:
        _write(target / name, files.tree.read(name))
        os.utime(target / name, (files[name].changed_s,) * 2)  # Spark compares times of data files

    last = [name for name in repair.copied if checksums.subject(name) == "metadata" or name == "metadata"]
    files.each(copy, [name for name in repair.copied if name not in last])
    for name in sorted(repair.written, key=lambda name: name == "metadata"):
        _write(target / name, repair.written[name])
    files.each(copy, last)
    found = whole_look(Files(Folder(target)))
    if found.opens != repair.batch or found.query.newest_commit != repair.batch:
        raise IntegrityError(f"{target}: the copy does not open at batch {repair.batch}; please report this as a bug")
    return found


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _kept(query: Query, batch: int) -> Iterator[str]:
    """Yields the files of the copy, without checksum files. Nothing damaged is among them, and nothing later."""
    files, layout = query.files, query.layout
    newest = batch + 1 if query.keeps_planned(batch) else batch
    yield from (name for number, name in layout.offsets.items() if number <= newest and number in query.offsets)
    yield from (name for number, name in layout.commits.items() if number <= batch and number in query.commits)
    yield from ["metadata", *layout.sources]
    if batch < 0:
        return
    described = [name for found in layout.metadata.values() for number, name in found.items() if number <= batch]
    yield from (name for name in (*described, *layout.schemas) if not files.fact(name).problem)
    for store in layout.stores.values():
        yield from _kept_state(files, store, batch + 1)


def _kept_state(files: Files, store: Store, newest: int) -> Iterator[str]:
    changes = ((version, name) for version, name in store.changes.items() if version.version <= newest)
    yield from (name for _, name in changes if not files.fact(name).problem)
    data: set[str] = set()
    for version, name in store.snapshots.items():
        if version.version <= newest and not snapshot_problems(store, name, files):
            data |= {path for path, _ in references(store, name, files)}
            yield name
    yield from sorted(data)


def _sums(files: Files, name: str) -> Iterator[str]:
    """Yields the checksum files that match, and those of these."""
    wrong = {found.file for found in files.fact(name).wrong_sums}
    for file in checksums.names_of(name):
        if file in files and file not in wrong:
            yield file
            own, _ = checksums.names_of(file)
            if own in files and own not in wrong:
                yield own


def _written(diagnosis: Diagnosis, batch: int, target: Path, named: str) -> Iterator[tuple[str, bytes]]:
    query, files = diagnosis.query, diagnosis.query.files
    if files.fact("metadata").problem:
        legible = content.query_id_within(files.tree.read("metadata")) if "metadata" in files else ""
        yield "metadata", json.dumps({"id": legible or str(uuid.uuid4())}).encode()
    for operator, versions in query.layout.metadata.items() if batch >= 0 else ():
        for number, name in versions.items():
            if 0 <= number <= batch and not files.fact(name).problem:
                yield name, _renamed(query, operator, name, target, named)
    for place, opening in diagnosis.state.items():
        if opening.detour:
            newest = query.store(place).changes[opening.chain[-1]]
            lineage = [version for version in opening.chain[:-1] if version.version]
            yield newest, changelog.with_lineage(files.tree.read(newest), lineage)


def _renamed(query: Query, operator: int, name: str, target: Path, named: str) -> bytes:
    """An operator's metadata names its schema files by their full paths."""

    def renamed(path: str) -> str:
        root = named.rstrip("/") or _root(query.files.tree.location, operator_metadata.root(path), target)
        return operator_metadata.schema_path(root, operator, operator_metadata.below(path))

    fields = operator_metadata.described(query.files.fact(name).value, operator, renamed)
    return operator_metadata.text_of(fields).encode()


def _root(location: str, before: str, target: Path) -> str:
    """Returns how Spark will name the copy in `target`. `before`: how it names the checkpoint at `location`."""
    if before.startswith(("file:", "s3", "gs:", "az:", "abfs", "wasb")):
        return f"file:{target.absolute()}"
    try:
        return operator_metadata.renamed_root(before, Path(location), target)
    except PreconditionError as error:
        raise PreconditionError(f"{error}; or say it: --named LOCATION") from error


def _consequences(query: Query, batch: int) -> Iterator[str]:
    newest = max(query.newest_offset, query.newest_commit)
    first = batch + 1
    if query.keeps_planned(batch):
        yield f"batch {first} is computed again with the same rows, and the sink gets it again"
        first += 1
    if first <= newest:
        yield (
            f"batches {first} to {newest} are planned anew and may have other rows: unless the sink upserts by key, "
            "delete its output of these batch ids"
        )
    if batch < newest:
        yield f"the sources must still have the rows after batch {batch}, whose offsets are in offsets/{max(batch, 0)}"
        yield f"a file sink skips the batches in its own log: move entries after {batch} out of its _spark_metadata"
    if query.files.fact("metadata").problem:
        yield "the query may have a new id: sinks that know repeated batches by query id take them for new ones"
