"""Files from other workers, from their first byte until they count.

For the event loop: blocking work runs in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rhino_core.errors import AlreadyThereError
from rhino_core.ids import FileEntry, FileKind
from worker_runtime.storage.admission import Admission
from worker_runtime.storage.disk_work import DiskWork
from worker_runtime.storage.files import Seal
from worker_runtime.storage.incoming import Incoming, Piece
from worker_runtime.storage.incoming_files import IncomingFiles
from worker_runtime.storage.index import StoredFile
from worker_runtime.storage.locks import KeyedLocks
from worker_runtime.storage.stored_files import StoredFiles
from worker_runtime.storage.threads import Threads


class ReceivedFiles:
    """Files of one name take turns. `locks` are shared with uploads."""

    def __init__(
        self,
        stored: StoredFiles,
        incoming: IncomingFiles,
        admission: Admission,
        locks: KeyedLocks,
        threads: Threads,
        work: DiskWork,
    ) -> None:
        self._stored = stored
        self._incoming = incoming
        self._admission = admission
        self._locks = locks
        self._threads = threads
        self._work = work

    # ------------------------------------------------------------ unfinished files

    # All of these raise NoSpaceError, IntegrityError.

    async def begin(self, entry: FileEntry, pieces: Sequence[Piece] = ()) -> Incoming:
        """Create a temporary file and write the first bytes. A cancelled caller leaves nothing."""
        made: list[Incoming] = []
        try:
            await self._threads.run(entry.lane, lambda: made.append(self._incoming.begin(entry, pieces)))
        except asyncio.CancelledError:
            for incoming in made:  # nobody receives it: its stream has ended meanwhile
                self._incoming.discard(incoming)
            raise
        return made[0]

    async def append(self, entry: FileEntry, incoming: Incoming, pieces: Sequence[Piece]) -> None:
        await self._threads.run(entry.lane, lambda: self._incoming.append(entry, incoming, pieces))

    async def resume(self, entry: FileEntry) -> Incoming | None:
        """What a broken transfer has left of the file, or None. A cancelled caller leaves it where it was."""
        if not self._incoming.has_partial(entry):
            return None
        taken: list[Incoming | None] = []
        try:
            await self._threads.run(entry.lane, lambda: taken.append(self._incoming.resume(entry)))
        except asyncio.CancelledError:
            for left in filter(None, taken):
                self._incoming.suspend(entry, left)
            raise
        return taken[0]

    async def suspend(self, entry: FileEntry, incoming: Incoming) -> None:
        """The transfer broke: keep the received part, so that the next transfer resumes there."""
        await self._threads.run(entry.lane, lambda: self._incoming.suspend(entry, incoming))

    async def abort(self, entry: FileEntry, incoming: Incoming) -> None:
        """Discard an unfinished file."""
        await self._threads.run(entry.lane, lambda: self._incoming.abort(entry, incoming))

    # ------------------------------------------------------------ complete files

    async def finish(self, entry: FileEntry, incoming: Incoming) -> StoredFile:
        """Verify the bytes and put the file into the store. Data files and changelogs are visible at once.

        Raises IntegrityError for wrong bytes, AlreadyThereError if a file of this name with another checksum is here,
        UnavailableError if the file cannot be synced.
        """
        self._incoming.ended(incoming)
        async with self._locks.hold((entry.store, entry.name)):
            if (known := self._stored.record(entry.store, entry.name)) is not None:
                await self._threads.run(entry.lane, incoming.abort)
                return _same(known, entry)
            seal = await self._work.on_file(entry, lambda: self._incoming.place(entry, incoming))
            return await self._admit(entry, seal, linked=incoming.linked)

    async def receive_whole(self, entry: FileEntry, pieces: Sequence[Piece]) -> StoredFile:
        """Begin, append and finish with one switch to a thread, for files whose bytes are all in memory."""

        def whole() -> Seal:
            return self._incoming.place_or_abort(entry, self._incoming.create(entry, pieces))

        async with self._locks.hold((entry.store, entry.name)):
            if (known := self._stored.record(entry.store, entry.name)) is not None:
                return _same(known, entry)
            return await self._admit(entry, await self._work.on_file(entry, whole))

    async def receive_linked(self, entry: FileEntry) -> bool:
        """Store the file without a transfer. Return false if its bytes are not here under another name.

        Raises like `finish`.
        """
        async with self._locks.hold((entry.store, entry.name)):
            twins = self._stored.twins(entry)
            if not twins or (entry.store, entry.name) in self._stored:
                return False

            def link() -> Seal | None:
                incoming = self._incoming.link(entry, twins)
                return None if incoming is None else self._incoming.place_or_abort(entry, incoming)

            seal = await self._work.on_file(entry, link)
            if seal is None:
                return False
            await self._admit(entry, seal, linked=True)
            return True

    async def _admit(self, entry: FileEntry, seal: Seal, *, linked: bool = False) -> StoredFile:
        visible = entry.kind is not FileKind.SNAPSHOT
        return await self._admission.admit(
            entry, seal, visible=visible, received=True, step="store.incoming.index", linked=linked
        )


def _same(known: StoredFile, entry: FileEntry) -> StoredFile:
    """Return `known`. Raises AlreadyThereError unless `entry` has the same bytes."""
    if (known.entry.crc32c, known.entry.size_bytes) != (entry.crc32c, entry.size_bytes):
        raise AlreadyThereError(f"{entry.store}/{entry.name} is here with another checksum")
    return known
