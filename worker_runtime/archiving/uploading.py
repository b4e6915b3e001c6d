"""Uploads versions to the archive: the order of the manager for one batch of a query (docs/design/archive.md)."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from crc32c import crc32c

from rhino_archive.bucket import Bucket, bucket
from rhino_archive.manifest import ArchivedFile, ArchivedVersion, Extent, Part, pack_name
from rhino_archive.packs import Pack, Packer
from rhino_core.errors import IntegrityError, InvalidRequestError
from rhino_core.failpoints import hit
from rhino_core.ids import FileEntry, GroupId, Lane, StoreId, StoreVersion
from worker_runtime.archiving.known import ArchivedStore, Known
from worker_runtime.fetch.throttle import Throttle
from worker_runtime.precedence import Turns
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.versions.closure import pull_order
from worker_runtime.replication import Replication
from worker_runtime.storage.disk.files import READ_BYTES, read_pieces
from worker_runtime.storage.disk.locks import KeyedLocks

log = logging.getLogger(__name__)
SIGN_S = 2.0  # interval of signs of life to the manager
AT_ONCE = 2  # jobs: each needs the memory of two packs


@dataclass(frozen=True, slots=True)
class Order:
    """Versions to archive. `basis`: parts of the newest archived batch that have their groups."""

    archive: str
    job: str
    versions: tuple[StoreVersion, ...]
    basis: tuple[Part, ...]


@dataclass(slots=True)
class Progress:
    """Of one order. `part`: at the end, unless all groups were refused. `writes`, `reads`: requests to the store."""

    uploaded_bytes: int = 0
    left_bytes: int = 0
    writes: int = 0
    reads: int = 0
    part: Part | None = None
    refused: list[GroupId] = field(default_factory=list)


class Uploader:
    """Executes the orders of the manager, one per job at a time.

    A second order for a job waits for the first. The first ends by itself when its caller has gone, and its uploads
    count for the second. If instead the second ended the first, two managers could end each other's orders for ever.
    """

    def __init__(
        self,
        replication: Replication,
        turns: Turns,
        bytes_per_s: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._replication = replication
        self._turns = turns
        self._throttle = Throttle(bytes_per_s)
        self._clock = clock
        self._known: dict[tuple[str, str], Known] = {}  # by archive and job
        self._jobs = KeyedLocks()
        self._places = asyncio.Semaphore(AT_ONCE)
        replication.subscribe(self._observe)

    def _observe(self, event: ev.Event) -> None:
        if isinstance(event, ev.JobForgotten):
            self._known = {key: known for key, known in self._known.items() if key[1] != event.job}

    async def run(self, order: Order) -> AsyncGenerator[Progress, None]:
        """Yields the progress every SIGN_S, and at the end. Close the iterator to end the work.

        Raises InvalidRequestError, PreconditionError, UnavailableError, AccessDeniedError, and NoSpaceError if the
        archive is full.
        """
        if not order.versions or any(version.store.job != order.job for version in order.versions):
            raise InvalidRequestError(f"archive: job {order.job} needs versions, all of its own")
        progress = Progress()
        work = asyncio.create_task(self._in_turn(order, progress), name=f"archive of {order.job}")
        try:
            while not (await asyncio.wait({work}, timeout=SIGN_S))[0]:
                yield progress
            await work
            yield progress
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _in_turn(self, order: Order, progress: Progress) -> None:
        async with self._jobs.hold(order.job), self._places:
            self._known = {key: known for key, known in self._known.items() if known.used()}
            store = self._replication.store
            key = order.archive, order.job
            known = self._known.setdefault(key, Known(store.catalogue, self._clock))
            upload = _Upload(self._replication, bucket(order.archive), known, self.pace, progress)
            started = self._clock()
            with store.pins.keeping(order.versions):
                await upload.run(order)
        extra = {"job": order.job, "versions": len(order.versions), "bytes": progress.uploaded_bytes}
        log.info("archived", extra={**extra, "duration_s": round(self._clock() - started, 3)})

    async def pace(self, size_bytes: int) -> float:
        """Waits until so many bytes may go up, or come from the archive for a drill. Returns the time."""
        await self._turns.catch_up()
        await self._throttle.spend(size_bytes)
        return self._clock()


_Plan = Mapping[StoreVersion, tuple[FileEntry, ...]]


class _Damaged(Exception):
    """A file here is damaged, so its group is refused."""


@dataclass(slots=True)
class _Reading:
    """A file that is read. `pieces` blocks."""

    entry: FileEntry
    pieces: Iterator[bytes]
    size_bytes: int = 0
    crc32c: int = 0


class _Upload:
    """The work on one order. `pace`: see `Uploader.pace`."""

    def __init__(
        self,
        replication: Replication,
        into: Bucket,
        known: Known,
        pace: Callable[[int], Awaitable[float]],
        progress: Progress,
    ) -> None:
        self._replication = replication
        self._store = replication.store
        self._bucket = into
        self._known = known
        self._pace = pace
        self._progress = progress
        self._packer = Packer()
        self._packed_at: dict[str, float] = {}  # of uploaded packs
        self._new: list[ArchivedFile] = []  # packed, but not all of their packs are uploaded

    async def run(self, order: Order) -> None:
        groups: dict[GroupId, list[StoreVersion]] = {}
        for version in order.versions:
            groups.setdefault(version.store.group, []).append(version)
        self._progress.reads += await self._known.refresh(self._bucket, order.job, order.basis, tuple(groups))
        stores = {version.store: self._known.store(version.store) for version in order.versions}
        plans: dict[GroupId, _Plan] = {}
        for group, versions in groups.items():
            await asyncio.sleep(0)  # many groups must not delay commits
            plan = self._plan(versions, stores)
            if plan is None:
                self._progress.refused.append(group)
            else:
                plans[group] = plan
        self._progress.left_bytes = _new_bytes(plans.values(), stores)
        archived: dict[GroupId, list[ArchivedVersion]] = {}
        for group, plan in plans.items():
            try:
                archived[group] = [
                    ArchivedVersion(version, await self._files(order.job, entries, stores[version.store]))
                    for version, entries in plan.items()
                ]
            except _Damaged:
                self._progress.refused.append(group)
        if archived:
            await self._finish(order.job, archived)

    def _plan(self, versions: Iterable[StoreVersion], stores: Mapping[StoreId, ArchivedStore]) -> _Plan | None:
        """The files of the closures. None if one of the versions is not held."""
        plan = {}
        for version in versions:
            here = self._store.catalogue.store(version.store)
            names = here.cheapest_closure(version.version, stores[version.store].names(here))
            if names is None:
                return None
            found = [entry for name in names if (entry := here.get(name)) is not None]
            plan[version] = pull_order(sorted(found, key=lambda entry: (entry.version or (), entry.name)))
        return plan

    async def _files(self, job: str, entries: Iterable[FileEntry], archived: ArchivedStore) -> tuple[ArchivedFile, ...]:
        """Packs the files that are not in the archive. Raises _Damaged."""
        files = []
        for entry in entries:
            extents = archived.find(entry)
            if extents is None:
                extents = await self._pack(job, entry)
                self._new.append(ArchivedFile(entry, extents))
            files.append(ArchivedFile(entry, extents))
            archived.add(files[-1])
        return tuple(files)

    async def _pack(self, job: str, entry: FileEntry) -> tuple[Extent, ...]:
        """Packs a file, and uploads the packs that are complete. Raises _Damaged."""
        reading = _Reading(entry, read_pieces(self._store.files.path(entry), READ_BYTES))
        try:
            while packs := await self._store.threads.run(Lane.BULK, lambda: self._read(reading)):
                await self._put(job, packs)
        except IntegrityError as error:
            log.warning("a file for the archive cannot be read", extra={"file": entry.name, "error": str(error)})
            await self._replication.drop_damaged(entry.store, [entry.name])
            raise _Damaged from error
        finally:
            extents = self._packer.end()
        return extents

    def _read(self, reading: _Reading) -> list[Pack]:
        """Reads until packs are complete, or to the end: then there are none. Blocks. Raises IntegrityError."""
        entry = reading.entry
        with self._store.disk.errors_of(f"{entry.store}/{entry.name}"):
            for piece in reading.pieces:
                reading.crc32c = crc32c(piece, reading.crc32c)
                reading.size_bytes += len(piece)
                if packs := self._packer.add(piece):
                    return packs
        if (reading.size_bytes, reading.crc32c) != (entry.size_bytes, entry.crc32c):
            raise IntegrityError(f"{entry.store}/{entry.name}: the stored bytes do not match their checksum")
        return []

    async def _put(self, job: str, packs: Iterable[Pack]) -> None:
        for pack in packs:
            at = await self._pace(len(pack.data))
            hit("archive.pack.before")
            await self._bucket.put(pack_name(job, pack.name), pack.data)
            hit("archive.pack.after")
            self._packed_at[pack.name] = at
            self._progress.writes += 1
            self._progress.uploaded_bytes += len(pack.data)
            self._progress.left_bytes = max(0, self._progress.left_bytes - len(pack.data))
        unfinished = []
        for new in self._new:
            file = ArchivedFile(new.entry, self._packer.named(new.extents))
            if all(extent.pack in self._packed_at for extent in file.extents):
                times = (self._packed_at[extent.pack] for extent in file.extents)
                self._known.uploaded(file, min(times, default=math.inf))
            else:
                unfinished.append(new)
        self._new = unfinished

    async def _finish(self, job: str, archived: Mapping[GroupId, Iterable[ArchivedVersion]]) -> None:
        """Uploads the last pack, with the list of the versions."""
        versions = [version for theirs in archived.values() for version in theirs]
        closed = await self._store.threads.run(Lane.BULK, lambda: self._packer.close(versions, tuple(archived)))
        await self._put(job, closed.packs)
        hit("archive.part.before")
        self._known.listed(closed.part, closed.versions)
        hit("archive.part.after")
        self._progress.part, self._progress.left_bytes = closed.part, 0


def _new_bytes(plans: Iterable[_Plan], stores: Mapping[StoreId, ArchivedStore]) -> int:
    """Bytes of the files that are not in the archive. The same bytes under two names count once."""
    files = (entry for plan in plans for entries in plan.values() for entry in entries)
    new = (entry for entry in files if stores[entry.store].find(entry) is None)
    return sum({(entry.store, entry.content): entry.size_bytes for entry in new}.values())
