"""Reads archived batches completely: all bytes have their checksums, and all that a batch needs is there."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from rhino_archive.bucket import Bucket
from rhino_archive.claims import claimed_by
from rhino_archive.manifest import ArchivedFile, ArchivedVersion, Manifest, Part, digest_of, pack_name
from rhino_archive.reading import read_manifest, read_part
from rhino_core.errors import IntegrityError, PreconditionError, UnknownError
from rhino_core.ids import StoreId

KEPT_PACKS = 3  # in memory: files lie in one pack, or in neighbours
STRANGERS = 10  # are named
_OURS = re.compile(r"writer|unnamed|packs/[0-9a-f]{64}|batches/[0-9]{20}-[0-9a-f]{16}")


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

    def __init__(
        self,
        bucket: Bucket,
        job: str,
        report: Callable[[Verified], None] = lambda found: None,
        opens: Callable[[ArchivedVersion], bool] = lambda version: True,
    ) -> None:
        """`report` hears of the figures after each pack. `opens`: whether the files of a version open it."""
        self.found = Verified()
        self._bucket = bucket
        self._job = job
        self._report = report
        self._opens = opens
        self._packs: OrderedDict[str, bytes | None] = OrderedDict()
        self._seen: set[str] = set()  # packs
        self._done: set[tuple[object, ...]] = set()  # files
        self._sums: dict[tuple[StoreId, str], tuple[int, int]] = {}  # checksums and sizes of files

    async def verify(self, name: str) -> Manifest | None:
        """Verifies the batch with this manifest. Raises the errors of the bucket, if it does not answer or refuses."""
        self.found.batches += 1
        try:
            manifest = await read_manifest(self._bucket, name)
        except (IntegrityError, PreconditionError, UnknownError) as error:
            self.found.problems.append(str(error))
            return None
        versions: list[ArchivedVersion] = []
        lists = 0
        for part in manifest.parts:
            try:
                listed = await read_part(self._bucket, self._job, part)
            except (IntegrityError, UnknownError) as error:
                self.found.problems.append(str(error))
                continue
            lists += 1
            versions += listed
            self._check_list(manifest, part, listed)
            files = [file for version in listed for file in version.files]
            await self._verify_files(sorted(files, key=lambda file: [(e.pack, e.offset) for e in file.extents]))
        if lists == len(manifest.parts) and digest_of(one.version for one in versions) != manifest.digest:
            self._problem(name, "its lists do not have every version of the batch exactly once")
        logs = {"metadata", f"offsets/{manifest.batch_id}", f"commits/{manifest.batch_id}"}
        if manifest.checkpoint and (missing := logs - {file.path for file in manifest.checkpoint}):
            self._problem(name, f"its query checkpoint lacks {', '.join(sorted(missing))}")
        for pack in sorted(manifest.packs - self._seen):  # with lists only
            await self._pack(pack)
        return manifest

    async def verify_others(self) -> None:
        """Finds objects of strangers, and a missing or damaged claim. Raises the errors of the bucket."""
        names = [one.name async for one in self._bucket.list(f"{self._job}/")]
        strangers = [name for name in names if not _OURS.fullmatch(name.removeprefix(f"{self._job}/"))]
        for name in strangers[:STRANGERS]:
            self._problem(name, "this is no object of an archive")
        if more := strangers[STRANGERS:]:
            self._problem(self._job, f"{len(more)} others are no objects of an archive")
        try:
            if await claimed_by(self._bucket, self._job) is None:
                self._problem(f"{self._job}/writer", "is not there, so no cluster may write")
        except IntegrityError as error:
            self.found.problems.append(str(error))

    def _problem(self, name: str, text: str) -> None:
        self.found.problems.append(f"archive {self._bucket.url}: {name}: {text}")

    def _check_list(self, manifest: Manifest, part: Part, listed: Sequence[ArchivedVersion]) -> None:
        name = pack_name(self._job, part.place.pack)
        if {one.version.store.group for one in listed} != set(part.groups):
            self._problem(name, f"its list has other groups than {manifest.name} says")
        packs = {extent.pack for one in listed for file in one.files for extent in file.extents} | {part.place.pack}
        for pack in sorted(packs.difference(part.packs)):
            self._problem(manifest.name, f"does not name {pack_name(self._job, pack)}, so retention would delete it")
        for one in listed:
            if any(file.entry.store != one.version.store for file in one.files):
                self._problem(name, f"its list has files of another store for {one.version}")
            elif not self._opens(one):
                self._problem(name, f"the files in its list do not open {one.version}")

    async def _verify_files(self, files: Sequence[ArchivedFile]) -> None:
        for file in files:
            sums = file.entry.crc32c, file.entry.size_bytes
            key = (file.entry.store, file.entry.name, sums, file.extents)
            if key in self._done:
                continue
            self._done.add(key)
            self.found.files += 1
            packs = ", ".join(dict.fromkeys(pack_name(self._job, e.pack) for e in file.extents))
            if self._sums.setdefault((file.entry.store, file.entry.name), sums) != sums:
                self._problem(packs, f"{file.entry.store}/{file.entry.name} has another checksum in another batch")
            checksum = size = 0
            whole = True
            async for piece in self._pieces(file):
                whole = whole and piece is not None
                checksum, size = crc32c(piece or b"", checksum), size + len(piece or b"")
            if whole and (checksum, size) != sums:
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
