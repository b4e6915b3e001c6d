"""Looks for versions in an archive. Many tasks ask for the same lists, so these are remembered for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import ArchivedVersion, Manifest, Part
from rhino_archive.reading import manifests_of_batch, newest_manifest, read_part
from rhino_core.errors import IntegrityError
from rhino_core.ids import StoreVersion

KEPT_BYTES = 4 * 1024 * 1024  # of compressed lists; in memory they are about fifteen times as large
KEPT_S = 600.0
NEWS_S = 5.0  # what may change in the archive is asked again after so long


@dataclass(frozen=True, slots=True)
class _Kept:
    """`until`: monotonic seconds."""

    value: Any
    size_bytes: int
    until: float


_Versions = dict[StoreVersion, ArchivedVersion]


class Lists:
    """Manifests and lists of files. Simultaneous callers share one request, and its error."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}  # the one used last is at the end
        self._reading: dict[Hashable, asyncio.Task[_Kept]] = {}

    async def find(self, bucket: Bucket, version: StoreVersion) -> ArchivedVersion | None:
        """The files of exactly this version, or None if the archive does not have it.

        Raises IntegrityError for damage, UnknownError for a missing pack, and the errors of the bucket.
        """
        job, batch_id = version.store.job, version.version.version - 1
        manifests: list[Manifest] = await self._get(
            (bucket.url, job, batch_id), lambda: self._manifests(bucket, job, batch_id)
        )
        for part in (manifest.part_of(version.store.group) for manifest in manifests):
            found = await self._in_part(bucket, part, version) if part is not None else None
            if found is not None:
                return found
        return None

    async def _in_part(self, bucket: Bucket, part: Part, version: StoreVersion) -> ArchivedVersion | None:
        job = version.store.job
        versions: _Versions = await self._get((bucket.url, job, part.place), lambda: self._part(bucket, job, part))
        found = versions.get(version)
        if found is not None and any(file.entry.store != version.store for file in found.files):
            raise IntegrityError(f"archive {bucket.url}: pack {part.place.pack}: {version} has files of another store")
        return found

    async def newest(self, bucket: Bucket, job: str) -> int | None:
        """Id of the newest archived batch. Raises the errors of the bucket."""
        newest: int | None = await self._get((bucket.url, job), lambda: self._newest(bucket, job))
        return newest

    async def _get(self, key: Hashable, read: Callable[[], Coroutine[Any, Any, _Kept]]) -> Any:
        kept = self._kept.pop(key, None)
        if kept is None or kept.until < time.monotonic():
            task = self._reading.get(key)
            if task is None:
                task = self._reading[key] = asyncio.create_task(read(), name=f"archive: {key}")
                task.add_done_callback(lambda _: self._reading.pop(key, None))
            kept = await asyncio.shield(task)
        self._kept.pop(key, None)
        self._kept[key] = kept
        self._drop()
        return kept.value

    def _drop(self) -> None:
        """Drops what is old, and what has not been used for the longest time. Keeps the last one in any case."""
        now, size_bytes = time.monotonic(), sum(kept.size_bytes for kept in self._kept.values())
        for key, kept in list(self._kept.items())[:-1]:
            if kept.until < now or size_bytes > KEPT_BYTES:
                size_bytes -= kept.size_bytes
                del self._kept[key]

    async def _manifests(self, bucket: Bucket, job: str, batch_id: int) -> _Kept:
        manifests = await manifests_of_batch(bucket, job, batch_id)
        parts = [part for manifest in manifests for part in manifest.parts]
        size_bytes = sum(32 * (len(part.packs) + len(part.groups)) for part in parts)
        return _Kept(manifests, size_bytes, time.monotonic() + (KEPT_S if manifests else NEWS_S))

    async def _part(self, bucket: Bucket, job: str, part: Part) -> _Kept:
        versions = {one.version: one for one in await read_part(bucket, job, part)}
        return _Kept(versions, part.place.size_bytes, time.monotonic() + KEPT_S)

    async def _newest(self, bucket: Bucket, job: str) -> _Kept:
        newest = await newest_manifest(bucket, job)
        return _Kept(None if newest is None else newest.batch_id, 0, time.monotonic() + NEWS_S)
