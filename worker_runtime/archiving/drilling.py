"""Restore drills: versions are fetched from the archive, and compared with those here (docs/design/archive.md)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from crc32c import crc32c

from rhino_archive.bucket import Bucket, bucket
from rhino_archive.manifest import ArchivedFile, ArchivedVersion, Part, pack_name
from rhino_archive.reading import read_part
from rhino_core.errors import IntegrityError, InvalidRequestError, UnavailableError, UnknownError
from rhino_core.ids import Lane, StoreVersion
from worker_runtime.replication import Replication
from worker_runtime.verify import fingerprint
from worker_runtime.verify.fingerprint import Fingerprint

log = logging.getLogger(__name__)
_Found = Mapping[str, Any]  # see fingerprint.main


@dataclass(frozen=True, slots=True)
class Drilled:
    """`keys` of all versions, `fetched_bytes` of files. `unproven`: why the content was not compared, or empty."""

    keys: int
    fetched_bytes: int
    unproven: str


class Driller:
    """Makes one drill at a time. `pace(size_bytes)` waits until so many bytes may be fetched."""

    def __init__(self, replication: Replication, pace: Callable[[int], Awaitable[object]]) -> None:
        self._store = replication.store
        self._pace = pace
        self._turn = asyncio.Lock()

    async def drill(self, archive: str, part: Part, versions: Sequence[StoreVersion]) -> Drilled:
        """Restores the versions to a folder of its own, which is deleted in any case.

        Raises UnknownError if a version is not here, and IntegrityError, with the object, if the archive does not have
        the same. Raises NoSpaceError, UnavailableError and the errors of the bucket if it cannot be tried.
        """
        if not versions or {version.store.group for version in versions} != set(part.groups):
            raise InvalidRequestError("drill: needs versions, all of the group of the part")
        async with self._turn:
            scratch, started = self._store.layout.temporary(), time.monotonic()
            try:
                done = await self._drill(bucket(archive), part, versions, scratch)
            except OSError as error:
                raise UnavailableError(f"the folder {scratch} of a restore drill cannot be used: {error}") from error
            finally:
                self._store.trash.discard(scratch)
        extra = {"group": str(versions[0].store.group), "bytes": done.fetched_bytes, "unproven": done.unproven}
        log.info("restore drill", extra={**extra, "duration_s": round(time.monotonic() - started, 3)})
        return done

    async def _drill(self, archive: Bucket, part: Part, versions: Sequence[StoreVersion], scratch: Path) -> Drilled:
        here, there = ([scratch / side / str(i) for i in range(len(versions))] for side in ("here", "there"))
        with self._store.pins.keeping(versions):
            for version, folder in zip(versions, here, strict=True):
                await self._store.threads.run(Lane.BULK, partial(self._link, version, self._names(version), folder))
        try:
            archived = await _archived(archive, part, versions)
            for one, folder in zip(archived, there, strict=True):
                folder.mkdir(parents=True)
                for file in one.files:
                    await self._fetch(archive, file, folder / file.entry.name)
        except UnknownError as error:  # the bucket's, for a pack that is not there
            raise IntegrityError(str(error)) from error
        found = await _fingerprints([*here, *there])
        for one, ours, theirs in zip(archived, found, found[len(here) :], strict=False):
            _compare(archive, one, ours, theirs)
        unproven = next((one["unproven"] for one in found if "unproven" in one), "")
        fetched_bytes = sum(file.entry.size_bytes for one in archived for file in one.files)
        return Drilled(sum(one.get("keys", 0) for one in found[len(here) :]), fetched_bytes, unproven)

    def _names(self, version: StoreVersion) -> Collection[str]:
        names = self._store.catalogue.store(version.store).closure(version.version)
        if names is None:
            raise UnknownError(f"{version} is not here")
        return names

    def _link(self, version: StoreVersion, names: Collection[str], folder: Path) -> None:
        folder.mkdir(parents=True)
        for name in names:
            target = folder / name
            target.parent.mkdir(exist_ok=True)
            os.link(self._store.layout.path(version.store, name), target, follow_symlinks=False)

    async def _fetch(self, archive: Bucket, file: ArchivedFile, path: Path) -> None:
        """Raises IntegrityError, with the packs, for wrong bytes."""
        path.parent.mkdir(exist_ok=True)
        found = 0, 0
        with path.open("wb") as out:
            for extent in file.extents:
                await self._pace(extent.size_bytes)
                self._store.disk.check(extent.size_bytes)
                name = pack_name(file.entry.store.job, extent.pack)
                data = await archive.get_range(name, extent.offset, extent.size_bytes)
                found = await self._store.threads.run(Lane.BULK, partial(_append, out, data, *found))
        if found != (file.entry.size_bytes, file.entry.crc32c):
            where = f"archive {archive.url}: {file.entry.store}/{file.entry.name}"
            raise IntegrityError(f"{where}: wrong bytes in {_packs(file)}")


def _append(out: BinaryIO, data: bytes, size_bytes: int, checksum: int) -> tuple[int, int]:
    """The size and checksum of the file with these bytes."""
    out.write(data)
    return size_bytes + len(data), crc32c(data, checksum)


async def _archived(archive: Bucket, part: Part, versions: Sequence[StoreVersion]) -> list[ArchivedVersion]:
    """The versions in the archive. Raises IntegrityError if one is not in the list of the part."""
    job = versions[0].store.job
    listed = {one.version: one for one in await read_part(archive, job, part)}
    for version in versions:
        if version not in listed or any(file.entry.store != version.store for file in listed[version].files):
            where = f"archive {archive.url}: {pack_name(job, part.place.pack)}"
            raise IntegrityError(f"{where}: its list does not have the files of {version}")
    return [listed[version] for version in versions]


def _packs(*files: ArchivedFile) -> str:
    return ", ".join(dict.fromkeys(pack_name(f.entry.store.job, e.pack) for f in files for e in f.extents))


def _compare(archive: Bucket, archived: ArchivedVersion, ours: _Found, theirs: _Found) -> None:
    """Raises IntegrityError unless both have the same content, and UnavailableError for damage here."""
    version = archived.version
    if "damaged" in ours:
        raise UnavailableError(f"{version}: the copy here cannot be compared: {ours['damaged']}")
    where = f"archive {archive.url}: {version}, restored from {_packs(*archived.files) or 'no pack'},"
    if "damaged" in theirs:
        raise IntegrityError(f"{where} cannot be opened: {theirs['damaged']}")
    if "keys" in ours and "keys" in theirs and not Fingerprint(**ours).same(Fingerprint(**theirs)):
        raise IntegrityError(f"{where} has {theirs['keys']} keys, and not the same content as the {ours['keys']} here")


async def _fingerprints(folders: Sequence[Path]) -> list[_Found]:
    """Raises UnavailableError if the process ends before its work."""
    command = (sys.executable, "-P", "-m", fingerprint.__name__, *map(str, folders))
    # Not by asyncio: of 60 processes that uvloop forked, 5 crashed at their start; of 120 by Popen (vfork), none.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: ASYNC220  milliseconds
    try:
        output, errors = await asyncio.to_thread(process.communicate)
    finally:
        process.kill()  # if it has not ended
    if process.returncode:
        why = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise UnavailableError(f"the process that reads restored state has ended with {process.returncode}: {why}")
    return [json.loads(line) for line in output.splitlines()]
