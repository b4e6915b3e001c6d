"""Restore drills: versions are fetched from the archive, and compared with those here (docs/design/archive.md)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rhino_archive.bucket import Bucket, bucket
from rhino_archive.manifest import ArchivedFile, ArchivedVersion, Extent, Part, pack_name
from rhino_archive.packs import ranges
from rhino_archive.reading import read_part
from rhino_core.errors import IntegrityError, InvalidRequestError, UnavailableError, UnknownError
from rhino_core.ids import Lane, StoreVersion
from worker_runtime.replication import Replication
from worker_runtime.storage.disk.files import checksum
from worker_runtime.storage.disk.threads import open_stored
from worker_runtime.verify import fingerprint

log = logging.getLogger(__name__)
_Found = Mapping[str, Any]  # what fingerprint.main prints


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
                self._store.trash.discard_folder(scratch)
        extra = {"group": str(versions[0].store.group), "bytes": done.fetched_bytes, "unproven": done.unproven}
        log.info("restore drill", extra={**extra, "duration_s": round(time.monotonic() - started, 3)})
        return done

    async def _drill(self, archive: Bucket, part: Part, versions: Sequence[StoreVersion], scratch: Path) -> Drilled:
        here, there = ([scratch / side / str(i) for i in range(len(versions))] for side in ("here", "there"))
        with self._store.pins.keeping(versions):
            for version, folder in zip(versions, here, strict=True):
                await self._store.threads.run(Lane.BULK, partial(self._link, version, self._names(version), folder))
        archived = await _archived(archive, part, versions)
        fetched_bytes = await self._fetch(archive, archived, there)
        found = await _fingerprints([*here, *there])
        live, restored = found[: len(here)], found[len(here) :]
        for one, ours, theirs in zip(archived, live, restored, strict=True):
            _compare(archive, one, ours, theirs)
        unproven = next((one["unproven"] for one in found if "unproven" in one), "")
        return Drilled(sum(one.get("keys", 0) for one in restored), fetched_bytes, unproven)

    def _names(self, version: StoreVersion) -> Collection[str]:
        names = self._store.catalogue.store(version.store).closure(version.version)
        if names is None:
            raise UnknownError(f"{version} is not here")
        return names

    def _link(self, version: StoreVersion, names: Iterable[str], folder: Path) -> None:
        folder.mkdir(parents=True)
        for name in names:
            target = folder / name
            target.parent.mkdir(exist_ok=True)
            os.link(self._store.layout.path(version.store, name), target, follow_symlinks=False)

    async def _fetch(self, archive: Bucket, archived: Sequence[ArchivedVersion], folders: Sequence[Path]) -> int:
        """Puts the files into a folder for each version, and compares their checksums. Returns their bytes."""
        places: dict[Extent, list[tuple[Path, int]]] = {}  # and where in the file
        files: list[tuple[Path, ArchivedFile]] = []
        for one, folder in zip(archived, folders, strict=True):
            folder.mkdir(parents=True)
            for file in one.files:
                path, at = folder / file.entry.name, 0
                path.parent.mkdir(exist_ok=True)
                path.touch()
                files.append((path, file))
                for extent in file.extents:
                    places.setdefault(extent, []).append((path, at))
                    at += extent.size_bytes
        left_bytes = sum(file.entry.size_bytes for _, file in files)
        for whole, extents in ranges(sorted(places, key=lambda extent: (extent.pack, extent.offset))):
            await self._pace(whole.size_bytes)
            self._store.disk.check(left_bytes)
            data = memoryview(await _read(archive, archived[0].version.store.job, whole))
            left_bytes -= whole.size_bytes
            pieces = {extent: data[extent.offset - whole.offset :][: extent.size_bytes] for extent in extents}
            writes = [(*place, piece) for extent, piece in pieces.items() for place in places[extent]]
            await self._store.threads.run(Lane.BULK, partial(_write, writes))
        for path, file in files:
            await self._store.threads.run(Lane.BULK, partial(_check, archive, path, file))
        return sum(file.entry.size_bytes for _, file in files)


async def _archived(archive: Bucket, part: Part, versions: Sequence[StoreVersion]) -> list[ArchivedVersion]:
    """What the archive has of the versions. Raises IntegrityError for less than that."""
    pack = f"archive {archive.url}: {pack_name(versions[0].store.job, part.place.pack)}"
    try:
        listed = {one.version: one for one in await read_part(archive, versions[0].store.job, part)}
    except UnknownError as error:
        raise IntegrityError(f"{pack}: with the list of files, is missing") from error
    for version in versions:
        if version not in listed or any(file.entry.store != version.store for file in listed[version].files):
            raise IntegrityError(f"{pack}: its list does not have the files of {version}")
    return [listed[version] for version in versions]


async def _read(archive: Bucket, job: str, extent: Extent) -> bytes:
    name = pack_name(job, extent.pack)
    try:
        data = await archive.get_range(name, extent.offset, extent.size_bytes)
    except UnknownError as error:
        raise IntegrityError(f"archive {archive.url}: {name} is missing") from error
    if len(data) != extent.size_bytes:
        raise IntegrityError(f"archive {archive.url}: {name} is too short")
    return data


def _write(pieces: Sequence[tuple[Path, int, memoryview]]) -> None:
    for path, at, data in pieces:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data)


def _check(archive: Bucket, path: Path, file: ArchivedFile) -> None:
    fd = open_stored(path)
    try:
        found = os.fstat(fd).st_size, checksum(fd)
    finally:
        os.close(fd)
    if found != (file.entry.size_bytes, file.entry.crc32c):
        raise IntegrityError(f"archive {archive.url}: {file.entry.store}/{file.entry.name}: wrong bytes in {_packs(file)}")


def _packs(*files: ArchivedFile) -> str:
    return ", ".join(dict.fromkeys(pack_name(f.entry.store.job, e.pack) for f in files for e in f.extents))


def _compare(archive: Bucket, archived: ArchivedVersion, ours: _Found, theirs: _Found) -> None:
    """Raises IntegrityError unless both have the same content, and UnavailableError for damage here."""
    version = archived.version
    if "damaged" in ours:
        raise UnavailableError(f"{version}: the copy here cannot be compared: {ours['damaged']}")
    where = f"archive {archive.url}: {version}, restored from {_packs(*archived.files)},"
    if "damaged" in theirs:
        raise IntegrityError(f"{where} cannot be opened: {theirs['damaged']}")
    if "digest" in ours and "digest" in theirs and ours != theirs:
        raise IntegrityError(f"{where} has {theirs['keys']} keys, and not the same content as the {ours['keys']} here")


async def _fingerprints(folders: Sequence[Path]) -> list[_Found]:
    """Raises UnavailableError if the process ends before its work."""
    command = (sys.executable, "-P", "-m", fingerprint.__name__, *map(str, folders))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        why = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise UnavailableError(f"the process that reads restored state has ended with {process.returncode}: {why}")
    return [json.loads(line) for line in output.splitlines()]
