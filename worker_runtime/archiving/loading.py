"""Loads versions from the archive when no worker can serve them (docs/design/archive.md)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rhino_archive.bucket import Bucket, bucket
from rhino_archive.manifest import ArchivedFile, ArchivedVersion
from rhino_core.errors import IntegrityError, RhinoError, UnknownError
from rhino_core.ids import GroupId, StoreVersion
from worker_runtime.archiving.lists import Lists
from worker_runtime.archiving.ranges import AHEAD_BYTES, Budget, RangeReader
from worker_runtime.fetch.peers import Copy, Peers, Reached
from worker_runtime.protocol.copies.preparing import PrepareState, Verdict
from worker_runtime.protocol.versions.closure import pull_order
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics
from worker_runtime.storage.disk.incoming import Incoming

log = logging.getLogger(__name__)
LASTING_S = 5.0  # workers that may have a version get so much time to come back
STALE_S = 30.0  # executors ask again all the time: a group not asked for so long is a new case
MEMORY_BYTES = 2 * AHEAD_BYTES  # of all loads


class Loader:
    """`ArchivePort` of a `Preparer`. `url()`: of the archive; empty if there is none."""

    def __init__(self, replication: Replication, peers: Peers, url: Callable[[], str], statistics: Statistics) -> None:
        self._replication = replication
        self._store = replication.store
        self._peers = peers
        self._url = url
        self._statistics = statistics
        self._lists = Lists()
        self._budget = Budget(MEMORY_BYTES)
        self._waiting: dict[GroupId, tuple[float, float]] = {}  # since when a version is unavailable, and asked last

    async def load(self, versions: Sequence[StoreVersion], verdict: Verdict, reached: Reached) -> Verdict | None:
        """See `ArchivePort`. The archive is asked for lost versions, and for those unavailable for LASTING_S.

        A worker that is away may still be the better answer, so nothing here makes UNAVAILABLE worse.
        """
        state, why = verdict
        if not self._url() or (state is PrepareState.UNAVAILABLE and not self._lasts(versions)):
            return verdict
        try:
            return await self._load(bucket(self._url()), versions, verdict, reached)
        except (IntegrityError, UnknownError) as error:
            if state is PrepareState.LOST:
                raise IntegrityError(f"{why}; {error}") from error
            return state, f"{why}; {error}"
        except RhinoError as error:
            return PrepareState.UNAVAILABLE, f"{why}; the archive cannot be asked: {error}"

    def _lasts(self, versions: Iterable[StoreVersion]) -> bool:
        """Whether tasks have been waiting for the groups of all these versions for LASTING_S."""
        now = time.monotonic()
        self._waiting = {group: times for group, times in self._waiting.items() if times[1] > now - STALE_S}
        groups = {version.store.group for version in versions}
        for group in groups:
            self._waiting[group] = self._waiting.get(group, (now, now))[0], now
        return all(self._waiting[group][0] <= now - LASTING_S for group in groups)

    async def _load(
        self, archive: Bucket, versions: Sequence[StoreVersion], verdict: Verdict, reached: Reached
    ) -> Verdict | None:
        found = [await self._lists.find(archive, version) for version in versions]
        archived = [one for one in found if one is not None]
        if len(archived) < len(versions):
            state, why = verdict
            if state is not PrepareState.LOST:
                return state, f"{why}; the archive does not have it"
            return state, f"{why}; {await self._instead(archive, versions[found.index(None)].store.job)}"
        files = self._missing(archived)
        catalogue = self._store.catalogue
        if not files and not all(catalogue.store(one.store).holds(one.version) for one in versions):
            raise IntegrityError(f"{versions[0]}: the archive's files for it are here, and are not enough to open it")
        if files:
            await self._fetch(archive, files, reached)
        return None

    async def _instead(self, archive: Bucket, job: str) -> str:
        newest = await self._lists.newest(archive, job)
        if newest is None:
            return f"the archive has no batch of query {job}"
        return f"the newest batch of query {job} in the archive is {newest}: `rhino rewind` goes to it"

    def _missing(self, archived: Iterable[ArchivedVersion]) -> list[ArchivedFile]:
        """The files that are not here, in the order in which they may come, and in that of the packs."""
        files = {(file.entry.store, file.entry.name): file for one in archived for file in one.files}
        missing = {key: file for key, file in files.items() if not self._peers.is_here(file.entry)}
        packed = sorted(missing.values(), key=lambda file: [(at.pack, at.offset) for at in file.extents[:1]])
        return [missing[entry.store, entry.name] for entry in pull_order(file.entry for file in packed)]

    async def _fetch(self, archive: Bucket, files: Sequence[ArchivedFile], reached: Reached) -> None:
        """Stores the files one after the other. Raises IntegrityError, with the packs, for wrong bytes."""
        started, received_bytes = time.monotonic(), 0
        job = files[0].entry.store.job
        reader = RangeReader(archive, job, (extent for file in files for extent in file.extents))
        with self._peers.turns.prepare():
            async with self._budget.hold(reader.memory_bytes):
                try:
                    for file in files:
                        copy = partial(self._copy, reader, file, reached)
                        received_bytes += await self._received(archive, file, copy)
                        reached(file.entry, file.entry.size_bytes)
                finally:
                    await reader.close()
        extra = {"job": job, "files": len(files), "bytes": received_bytes}
        log.info("loaded from the archive", extra={**extra, "duration_s": round(time.monotonic() - started, 3)})

    async def _received(self, archive: Bucket, file: ArchivedFile, copy: Copy) -> int:
        try:
            return await self._peers.receive(file.entry, archive.url, copy)
        except IntegrityError as error:
            packs = ", ".join(dict.fromkeys(extent.pack for extent in file.extents))
            raise IntegrityError(f"archive {archive.url}: damaged bytes in pack {packs}: {error}") from error

    async def _copy(self, reader: RangeReader, file: ArchivedFile, reached: Reached, incoming: Incoming) -> None:
        """Appends the bytes of a file behind those of an earlier attempt."""
        begins = 0
        for extent in file.extents:
            here = incoming.size_bytes - begins
            begins += extent.size_bytes
            if here >= extent.size_bytes:
                continue
            data = (await reader.read(extent))[here:]
            await self._store.received.append(file.entry, incoming, (data,))
            self._statistics.received_bytes += len(data)
            reached(file.entry, incoming.size_bytes)
