"""`rhino archive restore` and `export`: make a query checkpoint from an archived batch."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c
from rich.filesize import decimal

from rhino.cli.output import console
from rhino_archive.bucket import Bucket
from rhino_archive.manifest import ArchivedFile, Manifest
from rhino_archive.reading import manifests_of_batch, newest_manifest, read_file, read_part
from rhino_core.errors import AlreadyThereError, IntegrityError, NoSpaceError, PreconditionError, UnknownError
from rhino_core.foreign import read_json
from rhino_core.ids import StoreId
from rhino_core.text import count
from spark_connector import operator_metadata
from spark_connector.checkpoint import user_location
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import QueryCheckpoint, replace_file

AT_ONCE = 4  # files that are fetched at the same time


@dataclass(frozen=True, slots=True)
class Restored:
    """The archived batch that is in the checkpoint now. `state_files` and `state_bytes`: of an export.

    `job`: the id in the checkpoint. `source_job`: that of the archived query; a new query has another one.
    """

    job: str
    source_job: str
    query: str
    batch_id: int
    logged_ms: int
    checkpoint: str
    former_location: str
    state_files: int = 0
    state_bytes: int = 0


async def chosen(bucket: Bucket, job: str, batch: int | None) -> Manifest:
    """The manifest of a batch, or the one written last. Raises UnknownError, IntegrityError and the bucket's errors."""
    if batch is None:
        newest = await newest_manifest(bucket, job)
        if newest is None:
            raise UnknownError(f"archive {bucket.url}: has no batch of query {job!r}")
        return newest
    found = await manifests_of_batch(bucket, job, batch)
    if not found:
        raise UnknownError(f"archive {bucket.url}: has no batch {batch} of query {job!r}; see `rhino archive list`")
    return max(found, key=lambda one: one.written_ms)


def restore(manifest: Manifest, folder: Path) -> Restored:
    """Writes the query checkpoint, without state. Nothing is left behind by an error.

    Raises PreconditionError if the archive does not have it, and AlreadyThereError for a folder with content.
    """
    return _made(manifest, folder, lambda checkpoint: (0, 0))


def export(bucket: Bucket, manifest: Manifest, folder: Path, *, as_new_query: bool = False) -> Restored:
    """Like `restore`, with the state, in the form of Spark's own provider. Raises IntegrityError for damage, too.

    `as_new_query`: the checkpoint gets an id of its own, so both are different queries for everybody.
    """

    def fill(checkpoint: QueryCheckpoint) -> tuple[int, int]:
        if as_new_query:
            fields = read_json(checkpoint.folder / "metadata") | {"id": str(uuid.uuid4())}
            replace_file(checkpoint.folder / "metadata", json.dumps(fields, separators=(",", ":")).encode())
        found = asyncio.run(_fetch_all(bucket, manifest, checkpoint))
        checkpoint.rewrite_provider(PROVIDER_CLASSES["provider"], PROVIDER_CLASSES["checkpoint"])
        return found

    return _made(manifest, folder, fill)


def _made(manifest: Manifest, folder: Path, fill: Callable[[QueryCheckpoint], tuple[int, int]]) -> Restored:
    folder = folder.absolute()
    check(manifest, folder)
    temporary = folder.with_name(f".{folder.name}.rhino-restore")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        _write(manifest, temporary, folder)
        files, size_bytes = fill(QueryCheckpoint(temporary))
        job = QueryCheckpoint(temporary).job
        if folder.exists():
            folder.rmdir()  # it is empty
        temporary.rename(folder)
    except OSError as error:
        raise NoSpaceError(f"{folder} cannot be written: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Restored(
        job=job,
        source_job=manifest.job,
        query=manifest.query,
        batch_id=manifest.batch_id,
        logged_ms=manifest.logged_ms,
        checkpoint=str(folder),
        former_location=manifest.location,
        state_files=files,
        state_bytes=size_bytes,
    )


def check(manifest: Manifest, folder: Path) -> None:
    """Raises PreconditionError if the archive has no query checkpoint, and AlreadyThereError for a full folder."""
    if not manifest.checkpoint:
        raise PreconditionError(
            f"batch {manifest.batch_id} of query {manifest.job} was archived without its query checkpoint, because no "
            f"driver has sent it. Use the checkpoint at {manifest.location}, or another batch of `rhino archive list`"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise AlreadyThereError(f"{folder} has content already: name a folder that does not exist")


def _write(manifest: Manifest, temporary: Path, folder: Path) -> None:
    for file in manifest.checkpoint:
        path = temporary / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
    _name_schema_files(temporary, folder)


def _name_schema_files(temporary: Path, folder: Path) -> None:
    """The metadata of operators names their schema files by full paths."""
    for operator in operator_metadata.operators(temporary):
        for path in operator_metadata.versions(operator).values():
            fields = operator_metadata.read(path)
            number = int(operator.name)

            def named(present: str, number: int = number) -> str:
                below = Path(user_location(present)).parts[-2:]
                return operator_metadata.schema_path(f"file:{folder}", number, "/".join(below))

            replace_file(path, operator_metadata.text_of(operator_metadata.described(fields, number, named)).encode())


async def _fetch_all(bucket: Bucket, manifest: Manifest, checkpoint: QueryCheckpoint) -> tuple[int, int]:
    """Fetches all state files. Returns their number and bytes."""
    files: dict[tuple[StoreId, str], ArchivedFile] = {}
    for part in manifest.parts:
        for version in await read_part(bucket, manifest.job, part):
            files.update({(file.entry.store, file.entry.name): file for file in version.files})
    places, done = asyncio.Semaphore(AT_ONCE), 0
    with console(error=True).status("fetching") as status:

        async def fetch(file: ArchivedFile) -> None:
            nonlocal done
            async with places:
                await _fetch(bucket, file, checkpoint.store_folder(file.entry.store) / file.entry.name)
            done += 1
            status.update(f"{done} of {count(len(files), 'file')}")

        await asyncio.gather(*map(fetch, files.values()))
    size_bytes = sum(file.entry.size_bytes for file in files.values())
    console(error=True).print(f"{count(len(files), 'file')} of state, {decimal(size_bytes)}", highlight=False)
    return len(files), size_bytes


async def _fetch(bucket: Bucket, file: ArchivedFile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    checksum = 0
    with path.open("wb") as out:
        async for piece in read_file(bucket, file):
            checksum = crc32c(piece, checksum)
            await asyncio.to_thread(out.write, piece)
    if (checksum, path.stat().st_size) != (file.entry.crc32c, file.entry.size_bytes):
        packs = ", ".join(extent.pack for extent in file.extents)
        raise IntegrityError(f"archive {bucket.url}: {file.entry.store}/{file.entry.name} is damaged in pack {packs}")
