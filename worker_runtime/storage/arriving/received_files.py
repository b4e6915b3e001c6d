"""Files from other workers, from their first byte until they count.

`IncomingFiles` is for the threads of connections, `ReceivedFiles` for the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterable, Sequence
from functools import partial

from rhino_core.errors import AlreadyThereError, IntegrityError, PreconditionError
from rhino_core.failpoints import hit
from rhino_core.ids import FileEntry
from worker_runtime.protocol.keys import same_bytes
from worker_runtime.storage.arriving.admission import Admission
from worker_runtime.storage.disk.allocation.allocator import FileAllocator
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.disk.files import Checked, Seal, link_in, rename_in
from worker_runtime.storage.disk.incoming import Incoming, Piece
from worker_runtime.storage.disk.layout import Layout
from worker_runtime.storage.disk.partials import Partials
from worker_runtime.storage.disk.space import Space
from worker_runtime.storage.disk.threads import Threads
from worker_runtime.storage.index.stored_file import StoredFile
from worker_runtime.storage.index.stored_files import StoredFiles

log = logging.getLogger(__name__)
LINK_REFUSED = {  # by the file system, so that another attempt ends in the same way; and what to do
    errno.EMLINK: "it has as many names as this file system allows: forget branches that nobody needs",
    errno.EXDEV: "the data folder is on several file systems or in several projects of quotas: it must be in one",
    errno.EPERM: "this file system has no hard links, or denies them to this user: use another one for the data folder",
}


class IncomingFiles:
    """Blocks; safe for any thread. `ReceivedFiles` has the same for the event loop.

    Bytes still to come are announced to the disk, so other files leave room for them.
    """

    def __init__(
        self,
        layout: Layout,
        disk: Disk,
        space: Space,
        partials: Partials,
        allocator: FileAllocator,
    ) -> None:
        self._layout = layout
        self._disk = disk
        self._space = space
        self._partials = partials
        self._allocator = allocator

    def begin(self, entry: FileEntry, pieces: Sequence[Piece] = ()) -> Incoming:
        """Creates a temporary file and writes the first bytes. Raises NoSpaceError, IntegrityError."""
        with self._disk.errors_of(_name(entry)):
            self._space.make_room(entry.size_bytes)
            incoming = Incoming(*self._allocator.create(entry.size_bytes, lambda: self._partials.temporary(entry)))
            self._disk.announce(incoming, entry.size_bytes - sum(map(len, pieces)))
            try:
                incoming.reserve(self._allocator, entry.size_bytes)
                if incoming.reserved:  # the disk counts reserved space as used
                    self._disk.announce(incoming, 0)
                incoming.write(pieces)
            except OSError:
                self._disk.announce(incoming, 0)
                incoming.abort()
                raise
        return incoming

    def append(self, entry: FileEntry, incoming: Incoming, pieces: Sequence[Piece]) -> None:
        """Appends bytes. Raises NoSpaceError, IntegrityError."""
        with self._disk.errors_of(_name(entry)):
            incoming.write(pieces)
        if not incoming.reserved:
            self._disk.announce(incoming, entry.size_bytes - incoming.size_bytes)

    def release_space(self, entry: FileEntry, incoming: Incoming) -> None:
        """No bytes have arrived for a while: release the space reserved behind the received ones.

        Raises NoSpaceError, IntegrityError.
        """
        self._disk.announce(incoming, 0)
        with self._disk.errors_of(_name(entry)):
            incoming.release_space()

    def has_partial(self, entry: FileEntry) -> bool:
        """Whether a broken transfer has left a part of the file. Never touches the disk."""
        return self._partials.has(entry)

    def resume(self, entry: FileEntry) -> Incoming | None:
        """The part of the file left by a broken transfer, or None. Raises NoSpaceError, IntegrityError."""
        with self._disk.errors_of(_name(entry)):
            incoming = self._partials.take(entry)
        if incoming is not None:
            self._disk.announce(incoming, entry.size_bytes - incoming.size_bytes)
        return incoming

    def suspend(self, entry: FileEntry, incoming: Incoming) -> None:
        """The transfer broke: keep the received part. The next transfer resumes there.

        Raises NoSpaceError, IntegrityError.
        """
        self._disk.announce(incoming, 0)
        with self._disk.errors_of(_name(entry)):
            self._partials.keep(entry, incoming)

    def abort(self, entry: FileEntry, incoming: Incoming) -> None:
        """Discard an unfinished file. Raises NoSpaceError, IntegrityError."""
        self._disk.announce(incoming, 0)
        with self._disk.errors_of(_name(entry)):
            incoming.abort()

    def link(self, entry: FileEntry, twins: Iterable[StoredFile], *, must: bool = False) -> Incoming | None:
        """A link to a stored file with the same bytes; None if the bytes have to come from others.

        `must`: they cannot. Raises PreconditionError then if the file system refuses another name for the file.
        """
        for twin in twins:
            try:
                # Use a name that no partial file has: bytes are appended to partial files.
                path = self._layout.temporary()
                source = self._layout.path(twin.entry.store, twin.entry.name)
                return Incoming.link_of(source, path, Checked(twin.seal, twin.entry.crc32c))
            except (OSError, IntegrityError) as error:  # collected, damaged, or refused
                if isinstance(error, OSError):
                    self._disk.record_error(error)
                refused = LINK_REFUSED.get(error.errno or 0) if isinstance(error, OSError) else None
                if must and refused is not None:
                    raise PreconditionError(f"{source} cannot be linked: {error}; {refused}") from error
                level = logging.INFO if refused is None else logging.WARNING
                extra = {"file": entry.name, "to": twin.entry.name, "error": str(error)}
                log.log(level, "not linked", extra=extra)
        return None

    def place(self, entry: FileEntry, incoming: Incoming) -> Seal:
        """Verifies the bytes and gives the file its final name. Nothing is left behind if this fails.

        Raises NoSpaceError, IntegrityError, also for wrong bytes.
        """
        with self._disk.errors_of(_name(entry)):
            try:
                seal = incoming.finish(entry.size_bytes, entry.crc32c)
                hit("store.incoming.rename.before")
                path = self._layout.path(entry.store, entry.name)
                (link_in if incoming.linked else rename_in)(incoming.path, path)
                hit("store.incoming.rename.after")
            except OSError:
                incoming.abort()
                raise
        return seal

    def ended(self, incoming: Incoming) -> None:
        """No more bytes of this file are to come."""
        self._disk.announce(incoming, 0)


class ReceivedFiles:
    """Received files, for callers on the event loop. Blocking work runs in threads."""

    def __init__(
        self,
        stored: StoredFiles,
        incoming: IncomingFiles,
        admission: Admission,
        threads: Threads,
    ) -> None:
        self._stored = stored
        self._incoming = incoming
        self._admission = admission
        self._threads = threads

    # ------------------------------------------------------------ unfinished files

    # All of these do as those of `IncomingFiles`. They raise NoSpaceError, IntegrityError.

    async def begin(self, entry: FileEntry, pieces: Sequence[Piece] = ()) -> Incoming:
        """Creates a temporary file and writes the first bytes. A cancelled caller leaves nothing."""
        made: list[Incoming] = []
        try:
            await self._threads.run(entry.lane, lambda: made.append(self._incoming.begin(entry, pieces)))
        except asyncio.CancelledError:
            for incoming in made:  # nobody receives it: its stream has ended meanwhile
                self._incoming.abort(entry, incoming)
            raise
        return made[0]

    async def append(self, entry: FileEntry, incoming: Incoming, pieces: Sequence[Piece]) -> None:
        await self._threads.run(entry.lane, lambda: self._incoming.append(entry, incoming, pieces))

    async def resume(self, entry: FileEntry) -> Incoming | None:
        """The part of the file left by a broken transfer, or None. A cancelled caller leaves it in its place."""
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
        await self._threads.run(entry.lane, lambda: self._incoming.suspend(entry, incoming))

    async def abort(self, entry: FileEntry, incoming: Incoming) -> None:
        await self._threads.run(entry.lane, lambda: self._incoming.abort(entry, incoming))

    # ------------------------------------------------------------ complete files

    async def finish(self, entry: FileEntry, incoming: Incoming) -> StoredFile:
        """Verifies the bytes and puts the file into the store. Data files and changelogs are visible at once.

        Raises IntegrityError for wrong bytes, AlreadyThereError if a file of this name with another checksum is here,
        UnavailableError if the file cannot be synced.
        """
        self._incoming.ended(incoming)
        async with self._admission.turn(entry.store, entry.name):
            if (known := self._stored.record(entry.store, entry.name)) is not None:
                await self._threads.run(entry.lane, incoming.abort)
                return same(known, entry)
            place = partial(self._incoming.place, entry, incoming)
            seal = await self._threads.run_small(entry.lane, place, entry.size_bytes)
            return await self._admission.admit(entry, seal, received=True, linked=incoming.linked)

    async def receive_whole(self, entry: FileEntry, pieces: Sequence[Piece]) -> StoredFile:
        """Begin, append and finish with one switch to a thread, for files completely in memory."""
        async with self._admission.turn(entry.store, entry.name):
            if (known := self._stored.record(entry.store, entry.name)) is not None:
                return same(known, entry)
            seal = await self._threads.run_small(
                entry.lane, lambda: self._incoming.place(entry, self._incoming.begin(entry, pieces)), entry.size_bytes
            )
            return await self._admission.admit(entry, seal, received=True)

    async def receive_linked(self, entry: FileEntry) -> bool:
        """Stores the file without a transfer. Returns false if its bytes are not here under another name.

        Raises like `finish`.
        """
        async with self._admission.turn(entry.store, entry.name):
            twins = self._stored.twins(entry)
            if not twins or (entry.store, entry.name) in self._stored:
                return False

            def link() -> Seal | None:
                incoming = self._incoming.link(entry, twins)
                return None if incoming is None else self._incoming.place(entry, incoming)

            seal = await self._threads.run_small(entry.lane, link, entry.size_bytes)
            if seal is None:
                return False
            await self._admission.admit(entry, seal, received=True, linked=True)
            return True


def same(known: StoredFile, entry: FileEntry) -> StoredFile:
    """Returns `known`. Raises AlreadyThereError unless `entry` has the same bytes."""
    if not same_bytes(known.entry, entry):
        raise AlreadyThereError(f"{entry.store}/{entry.name} is here with another checksum")
    return known


def _name(entry: FileEntry) -> str:
    return f"{entry.store}/{entry.name}"
