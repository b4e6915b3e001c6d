"""Reads archived batches completely, and compares all bytes with their checksums."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import ArchivedFile, Manifest, pack_name
from rhino_archive.reading import read_manifest, read_part
from rhino_core.errors import IntegrityError, PreconditionError, UnknownError

KEPT_PACKS = 3  # in memory: files lie in one pack, or in neighbours


@dataclass(slots=True)
class Verified:
    """The figures of a verification. `problems`: each names an object."""

    batches: int = 0
    files: int = 0
    packs: int = 0
    size_bytes: int = 0
    problems: list[str] = field(default_factory=list)


class Verifier:
    """Verifies batches of one query. Each pack and each file is read once, however many batches name it."""

    def __init__(self, bucket: Bucket, job: str, report: Callable[[Verified], None] = lambda found: None) -> None:
        """`report` hears of the figures after each pack."""
        self.found = Verified()
        self._bucket = bucket
        self._job = job
        self._report = report
        self._packs: OrderedDict[str, bytes | None] = OrderedDict()
        self._seen: set[str] = set()  # packs
        self._done: set[tuple[object, ...]] = set()  # files

    async def verify(self, name: str) -> Manifest | None:
        """Verifies the batch with this manifest. Raises the errors of the bucket, if it does not answer or refuses."""
        self.found.batches += 1
        try:
            manifest = await read_manifest(self._bucket, name)
        except (IntegrityError, PreconditionError, UnknownError) as error:
            self.found.problems.append(str(error))
            return None
        for part in manifest.parts:
            try:
                versions = await read_part(self._bucket, self._job, part)
            except (IntegrityError, UnknownError) as error:
                self.found.problems.append(str(error))
                continue
            files = [file for version in versions for file in version.files]
            await self._verify_files(sorted(files, key=lambda file: [(e.pack, e.offset) for e in file.extents]))
        for pack in sorted(manifest.packs - self._seen):  # with lists only
            await self._pack(pack)
        return manifest

    async def _verify_files(self, files: Sequence[ArchivedFile]) -> None:
        for file in files:
            key = (file.entry.store, file.entry.name, file.entry.crc32c, file.extents)
            if key in self._done:
                continue
            self._done.add(key)
            self.found.files += 1
            checksum = size = 0
            whole = True
            async for piece in self._pieces(file):
                whole = whole and piece is not None
                checksum, size = crc32c(piece or b"", checksum), size + len(piece or b"")
            if whole and (checksum, size) != (file.entry.crc32c, file.entry.size_bytes):
                packs = ", ".join(dict.fromkeys(pack_name(self._job, e.pack) for e in file.extents))
                self.found.problems.append(f"{file.entry.store}/{file.entry.name}: wrong bytes in {packs}")

    async def _pieces(self, file: ArchivedFile) -> AsyncIterator[bytes | None]:
        for extent in file.extents:
            pack = await self._pack(extent.pack)
            yield None if pack is None else pack[extent.offset : extent.offset + extent.size_bytes]

    async def _pack(self, pack: str) -> bytes | None:
        """The bytes of a pack. None if they are missing or wrong: a problem is noted."""
        if pack in self._packs:
            self._packs.move_to_end(pack)
            return self._packs[pack]
        name = pack_name(self._job, pack)
        data: bytes | None = None
        try:
            found = await self._bucket.get(name)
            if await asyncio.to_thread(lambda: hashlib.sha256(found).hexdigest()) != pack:
                raise IntegrityError(f"archive {self._bucket.url}: {name}: its bytes do not match its name")
            data = found
        except (IntegrityError, UnknownError) as error:
            if pack not in self._seen:
                self.found.problems.append(str(error))
        if pack not in self._seen:
            self._seen.add(pack)
            self.found.packs, self.found.size_bytes = self.found.packs + 1, self.found.size_bytes + len(data or b"")
            self._report(self.found)
        self._packs[pack] = data
        while len(self._packs) > KEPT_PACKS:
            self._packs.popitem(last=False)
        return data
