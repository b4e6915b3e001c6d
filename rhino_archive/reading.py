"""Reads manifests and lists of files from an archive. Every error names the object."""

from __future__ import annotations

import asyncio

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import (
    BATCHES,
    ArchivedVersion,
    Manifest,
    Part,
    batch_name,
    manifest_of,
    pack_name,
    versions_of,
)
from rhino_core.errors import IntegrityError


async def read_manifest(bucket: Bucket, job: str, batch_id: int) -> Manifest:
    """Raises UnknownError if the batch is not archived, and the errors of `manifest_of` and of the bucket."""
    name = batch_name(job, batch_id)
    data = await bucket.get(name)
    manifest = await asyncio.to_thread(manifest_of, data, f"archive {bucket.url}: {name}")
    if (manifest.job, manifest.batch_id) != (job, batch_id):
        raise IntegrityError(f"archive {bucket.url}: {name}: it is batch {manifest.batch_id} of {manifest.job}")
    return manifest


async def read_part(bucket: Bucket, job: str, part: Part) -> list[ArchivedVersion]:
    """Raises IntegrityError for damage, UnknownError if the pack is missing, and the errors of the bucket."""
    name = pack_name(job, part.place.pack)
    data = await bucket.get_range(name, part.place.offset, part.place.size_bytes)
    try:
        return await asyncio.to_thread(versions_of, data, part)
    except IntegrityError as error:
        raise IntegrityError(f"archive {bucket.url}: {name}: {error}") from error


async def newest_batch(bucket: Bucket, job: str) -> int | None:
    """Id of the newest archived batch of a query, or None if there is none."""
    newest = None
    async for found in bucket.list(f"{job}/{BATCHES}/"):
        digits = found.name.rpartition("/")[2]
        if digits.isdecimal():
            newest = int(digits) if newest is None else max(newest, int(digits))
    return newest
