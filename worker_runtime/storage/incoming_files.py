"""Files on their way from other workers, as the threads see them that read connections."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from rhino_core.errors import IntegrityError
from rhino_core.failpoints import hit
from rhino_core.ids import FileEntry
from worker_runtime.storage.allocation.allocator import FileAllocator
from worker_runtime.storage.disk import Disk
from worker_runtime.storage.disk_work import DiskWork
from worker_runtime.storage.files import Checked, Seal, link_in, rename_in
from worker_runtime.storage.incoming import Incoming, Piece
from worker_runtime.storage.index import StoredFile
from worker_runtime.storage.layout import Layout
from worker_runtime.storage.partials import Partials
from worker_runtime.storage.space import Space

log = logging.getLogger(__name__)


class IncomingFiles:
    """Blocks; safe for any thread. received_files.py has the same for the event loop.

    Bytes that are still to come are announced to the disk, so that other files leave room for them.
    """

    def __init__(
        self,
        layout: Layout,
        disk: Disk,
        space: Space,
        partials: Partials,
        allocator: FileAllocator,
        work: DiskWork,
    ) -> None:
        self._layout = layout
        self._disk = disk
        self._space = space
        self._partials = partials
        self._allocator = allocator
        self._work = work

    def begin(self, entry: FileEntry, pieces: Sequence[Piece] = ()) -> Incoming:
        """Create a temporary file and write the first bytes. Raises NoSpaceError, IntegrityError."""
        return self._work.here(_name(entry), lambda: self.create(entry, pieces))

    def append(self, entry: FileEntry, incoming: Incoming, pieces: Sequence[Piece]) -> None:
        """Append bytes. Raises NoSpaceError, IntegrityError."""
        self._work.here(_name(entry), lambda: incoming.write(pieces))
        if not incoming.reserved:
            self._disk.announce(incoming, entry.size_bytes - incoming.size_bytes)

    def release_space(self, entry: FileEntry, incoming: Incoming) -> None:
        """No bytes have arrived for a while: release the space reserved behind the received ones.

        Raises NoSpaceError, IntegrityError.
        """
        self._disk.announce(incoming, 0)
        self._work.here(_name(entry), incoming.release_space)

    def has_partial(self, entry: FileEntry) -> bool:
        """Whether a broken transfer has left a part of the file. Never touches the disk."""
        return self._partials.has(entry)

    def resume(self, entry: FileEntry) -> Incoming | None:
        """What a broken transfer has left of the file, or None. Raises NoSpaceError, IntegrityError."""
        incoming = self._work.here(_name(entry), lambda: self._partials.take(entry))
        if incoming is not None:
            self._disk.announce(incoming, entry.size_bytes - incoming.size_bytes)
        return incoming

    def suspend(self, entry: FileEntry, incoming: Incoming) -> None:
        """The transfer broke: keep the received part, so that the next transfer resumes there.

        Raises NoSpaceError, IntegrityError.
        """
        self._disk.announce(incoming, 0)
        self._work.here(_name(entry), lambda: self._partials.keep(entry, incoming))

    def abort(self, entry: FileEntry, incoming: Incoming) -> None:
        """Discard an unfinished file. Raises NoSpaceError, IntegrityError."""
        self._disk.announce(incoming, 0)
        self._work.here(_name(entry), incoming.abort)

    def link(self, entry: FileEntry, twins: Iterable[StoredFile]) -> Incoming | None:
        """A file whose bytes all come from a stored file with the same bytes; None if they have to come from others."""
        for twin in twins:
            try:
                # Use a name that no partial file has: bytes are appended to partial files.
                path = self._layout.temporary()
                source = self._layout.path(twin.entry.store, twin.entry.name)
                return Incoming.link_of(source, path, Checked(twin.seal, twin.entry.crc32c))
            except (OSError, IntegrityError) as error:  # collected, damaged, or too many links
                if isinstance(error, OSError):
                    self._disk.record_error(error)
                log.info("not linked", extra={"file": entry.name, "to": twin.entry.name, "error": str(error)})
        return None

    # ------------------------------------------------------------ steps: these raise OSError

    def create(self, entry: FileEntry, pieces: Sequence[Piece]) -> Incoming:
        """Like `begin`. Raises OSError, NoSpaceError."""
        self._space.make_room(entry.size_bytes)
        incoming = Incoming(*self._allocator.create(entry.size_bytes, lambda: self._partials.temporary(entry)))
        self._disk.announce(incoming, entry.size_bytes - sum(map(len, pieces)))
        try:
            incoming.reserve(self._allocator, entry.size_bytes)
            if incoming.reserved:  # the disk counts reserved space as used
                self._disk.announce(incoming, 0)
            incoming.write(pieces)
        except OSError:
            self.discard(incoming)
            raise
        return incoming

    def place(self, entry: FileEntry, incoming: Incoming) -> Seal:
        """Verify the bytes and give the file its final name. Raises OSError, IntegrityError for wrong bytes."""
        seal = incoming.finish(entry.size_bytes, entry.crc32c)
        hit("store.incoming.rename.before")
        path = self._layout.path(entry.store, entry.name)
        (link_in if incoming.linked else rename_in)(incoming.path, path)
        hit("store.incoming.rename.after")
        return seal

    def place_or_abort(self, entry: FileEntry, incoming: Incoming) -> Seal:
        """Like `place`, but leaves nothing behind if it fails."""
        try:
            return self.place(entry, incoming)
        except OSError:
            incoming.abort()
            raise

    def ended(self, incoming: Incoming) -> None:
        """No more bytes of this file are to come."""
        self._disk.announce(incoming, 0)

    def discard(self, incoming: Incoming) -> None:
        """Like `abort`. Raises OSError."""
        self._disk.announce(incoming, 0)
        incoming.abort()


def _name(entry: FileEntry) -> str:
    return f"{entry.store}/{entry.name}"
