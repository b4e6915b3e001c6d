"""Reads manifests, lists of files and files from an archive. Every error names the object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import (
    BATCHES,
    ArchivedFile,
    ArchivedVersion,
    Manifest,
    Part,
    batch_prefix,
    manifest_of,
    pack_name,
    versions_of,
)
from rhino_core.errors import IntegrityError, UnknownError


async def manifest_names(bucket: Bucket, job: str) -> list[str]:
    """Names of all manifests of a query, the one written last first.

    After a rewind it may have an earlier batch than others: those are of a former history.
    """
    found = [one async for one in bucket.list(f"{job}/{BATCHES}/")]
    return [one.name for one in sorted(found, key=lambda one: (one.changed, one.name), reverse=True)]


async def read_manifest(bucket: Bucket, name: str) -> Manifest:
    """Raises UnknownError if it is not there, and the errors of `manifest_of` and of the bucket."""
    data = await bucket.get(name)
    manifest = await asyncio.to_thread(manifest_of, data, f"archive {bucket.url}: {name}")
    if manifest.name != name:
        raise IntegrityError(f"archive {bucket.url}: {name}: it is the manifest {manifest.name}")
    return manifest


async def newest_manifest(bucket: Bucket, job: str) -> Manifest | None:
    """The manifest written last, or None. Raises the errors of `read_manifest`."""
    for name in await manifest_names(bucket, job):
        try:
            return await read_manifest(bucket, name)
        except UnknownError:
            continue  # deleted meanwhile
    return None


async def manifests_of_batch(bucket: Bucket, job: str, batch_id: int) -> list[Manifest]:
    """Usually one; after a rewind one of each history. Raises the errors of `read_manifest`."""
    names = [one.name async for one in bucket.list(f"{job}/{BATCHES}/")]
    prefix = batch_prefix(job, batch_id)
    return [await read_manifest(bucket, name) for name in sorted(names) if name.startswith(prefix)]


async def read_part(bucket: Bucket, job: str, part: Part) -> list[ArchivedVersion]:
    """Raises IntegrityError for damage, UnknownError if the pack is missing, and the errors of the bucket."""
    name = pack_name(job, part.place.pack)
    data = await bucket.get_range(name, part.place.offset, part.place.size_bytes)
    try:
        return await asyncio.to_thread(versions_of, data, part)
    except IntegrityError as error:
        raise IntegrityError(f"archive {bucket.url}: {name}: {error}") from error


async def read_file(bucket: Bucket, file: ArchivedFile) -> AsyncIterator[bytes]:
    """The bytes of a file, in pieces of at most one pack. The caller compares the checksum."""
    for extent in file.extents:
        name = pack_name(file.entry.store.job, extent.pack)
        yield await bucket.get_range(name, extent.offset, extent.size_bytes)
