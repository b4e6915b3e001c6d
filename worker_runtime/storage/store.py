"""The store of one sidecar: immutable files on local disk, their index, pins and floors.

One asyncio loop owns it; blocking work runs in threads (threads.py). What it knows is in books.py, what leaves it in
removal.py; here is how files come in and are checked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rhino.errors import (
    AlreadyThereError,
    IntegrityError,
    InvalidRequestError,
    NoSpaceError,
    PreconditionError,
    RhinoError,
)
from rhino.failpoints import hit
from rhino.ids import Durability, FileEntry, FileKind, Lane, StoreId, Version, parse_name
from worker_runtime.storage import files, recovery
from worker_runtime.storage.disk import Disk
from worker_runtime.storage.durability import Promises
from worker_runtime.storage.files import Checked, Incoming, Layout, Piece
from worker_runtime.storage.index import Index, StoredFile
from worker_runtime.storage.locks import KeyedLocks
from worker_runtime.storage.removal import Removing
from worker_runtime.storage.spares import Spares
from worker_runtime.storage.syncer import Syncer, require_no_failure_before
from worker_runtime.storage.threads import SMALL_BYTES

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Checked:
    checked: Checked
    references: tuple[str, ...]
    identity: tuple[int, int]


class Store(Removing):
    """See the module. Make one with `Store.open` (blocking)."""

    def __init__(self, worker_id: str, layout: Layout, index: Index, syncer: Syncer, reserve_bytes: int) -> None:
        super().__init__(worker_id, layout, index, Disk(layout.store, reserve_bytes))
        self.incarnation = ""
        self.syncer = syncer
        self.promises = Promises(index, syncer)
        self._locks = KeyedLocks()
        self._spares = Spares(layout.spare, lambda work: self.threads.submit(Lane.COMMIT, work))
        self._device = os.stat(layout.store).st_dev

    @classmethod
    def open(cls, worker_id: str, data_dir: Path, reserve_bytes: int) -> Store:
        """Opens and recovers; raises when another process has the folder open. Blocks."""
        layout = Layout(data_dir)
        layout.create()
        boot = recovery.boot_id()
        require_no_failure_before(layout, boot)
        index = Index(layout.index)
        syncer = Syncer(layout, index.sync, boot)
        incarnation = recovery.incarnation(layout, index, boot)
        same_boot = index.meta("boot_id") == boot
        store = cls(worker_id, layout, index, syncer, reserve_bytes)
        store.incarnation = incarnation
        store.partials.recover(same_boot=same_boot)
        for record in recovery.recover(layout, index, boot):
            store._enter(record)
        store._hide_what_lost_files()
        if same_boot and any(store.synced(of) for of, _ in store._records):
            syncer.sync_everything()  # a former process may have been killed before a sync
        return store

    def close(self) -> None:
        self._spares.close()
        self.threads.close()
        self.syncer.close()
        self._index.close()

    # ------------------------------------------------------------ files of executors

    async def take_over(
        self, store: StoreId, name: str, inbox_file: Path, lineage: tuple[Version, ...] = ()
    ) -> StoredFile:
        """Takes a client's file out of its inbox into the store, hidden if it is a changelog or a zip.

        The same file again is fine, also when it has left the inbox with the first attempt. Raises AlreadyThereError
        for another one of the same name, PreconditionError for a zip of which a file is missing here, NoSpaceError,
        InvalidRequestError, UnknownError, UnavailableError when it cannot be synced.
        """
        kind = parse_name(name).kind
        lane = Lane.COMMIT if kind.versioned else Lane.BULK
        async with self._locks.hold((store, name)):
            known, doing, path = self._records.get((store, name)), f"{store}/{name}", self.layout.path(store, name)

            def take() -> _Checked | None:
                if known is not None and known.entry.written_by == self._worker_id and not os.path.lexists(inbox_file):
                    return None  # taken over by an attempt whose answer has got lost
                checked = self._check_inbox(inbox_file, kind, likely)
                if known is None and not checked.references:  # one trip to a thread for all but zips
                    files.move_in(inbox_file, path, checked.identity)
                return checked

            size_bytes = files.size_of(inbox_file)
            likely = [] if kind.versioned else self._of_size(store, size_bytes)
            checked = await self._run_guarded(lane, doing, take, size_bytes)
            if known is not None:
                return known if checked is None else await self._same_again(known, checked.checked, inbox_file)
            assert checked is not None
            seal, crc = checked.checked.seal, checked.checked.crc32c
            entry = FileEntry(
                store,
                name,
                seal.size_bytes,
                crc,
                lineage,
                checked.references,
                written_by=self._worker_id,
                same_as=checked.checked.same_as,
            )
            self._require_references(entry)
            protected = [(store, reference) for reference in entry.references]
            self._protected.update(protected)
            try:
                if entry.references:
                    await self._guarded(entry, lambda: files.move_in(inbox_file, path, checked.identity))
                hit("store.take_over.index.before")
                record = StoredFile(entry, seal, time.time_ns(), not kind.versioned, received=False)
                await self._put(record)
                hit("store.take_over.index.after")
                return await self._keep(record, linked=checked.checked.linked)
            finally:
                self._protected.subtract(protected)
                self._protected = +self._protected

    def _of_size(self, store: StoreId, size_bytes: int) -> list[tuple[Path, Checked]]:
        """Stored data files of which a new one of this size may be a hard link or a copy.

        Spark uploads a file again, under another name, while its first upload is under way.
        """
        records = [self._records[store, entry.name] for entry in self.catalogue.store(store).data_files(size_bytes)]
        return [(self.path(r.entry), Checked(r.seal, r.entry.crc32c, r.entry.content, linked=True)) for r in records]

    def _check_inbox(self, path: Path, kind: FileKind, likely: Iterable[tuple[Path, Checked]]) -> _Checked:
        self.disk.check()
        checked, identity = files.check_inbox_file(path, self._device, likely)
        references = files.zip_references(path) if kind is FileKind.SNAPSHOT else ()
        for reference in references:
            if parse_name(reference).kind.versioned:
                raise InvalidRequestError(f"{path.name}: names {reference!r}, expected SST and log files only")
        return _Checked(checked, references, identity)

    def _require_references(self, entry: FileEntry) -> None:
        missing = [reference for reference in entry.references if (entry.store, reference) not in self._records]
        if missing:
            raise PreconditionError(
                f"{entry.store}/{entry.name}: names {len(missing)} files that are not here, first {missing[0]}; "
                "add them before"
            )

    async def _same_again(self, known: StoredFile, checked: Checked, inbox_file: Path) -> StoredFile:
        entry = known.entry
        if (entry.crc32c, entry.size_bytes) != (checked.crc32c, checked.seal.size_bytes):
            raise AlreadyThereError(
                f"{entry.store}/{entry.name} is here with {entry.size_bytes} bytes and crc32c {entry.crc32c:08x}; "
                f"offered {checked.seal.size_bytes} bytes with {checked.crc32c:08x}"
            )
        hit("store.inbox.unlink.before")
        await self.threads.run(Lane.COMMIT, lambda: inbox_file.unlink(missing_ok=True))
        hit("store.inbox.unlink.after")
        return known

    # ------------------------------------------------------------ files from other workers

    def begin_incoming(self, entry: FileEntry, pieces: Sequence[Piece] = ()) -> Incoming:
        """A temporary file for bytes from another worker, with the first ones. For any thread; blocks.

        Raises NoSpaceError, IntegrityError.
        """
        return self._here(f"{entry.store}/{entry.name}", lambda: self._start(entry, pieces))

    def append_incoming(self, entry: FileEntry, incoming: Incoming, pieces: Sequence[Piece]) -> None:
        """For any thread; blocks. Raises NoSpaceError, IntegrityError."""
        self._here(f"{entry.store}/{entry.name}", lambda: incoming.write(pieces))
        if not incoming.reserved:
            self.disk.announce(incoming, entry.size_bytes - incoming.size_bytes)

    async def start_incoming(self, entry: FileEntry, pieces: Sequence[Piece] = ()) -> Incoming:
        """As `begin_incoming`, in a thread."""
        made: list[Incoming] = []
        try:
            await self.threads.run(entry.lane, lambda: made.append(self.begin_incoming(entry, pieces)))
        except asyncio.CancelledError:
            for incoming in made:  # nobody gets it: its stream has ended meanwhile
                self.disk.announce(incoming, 0)
                incoming.abort()
            raise
        return made[0]

    def _start(self, entry: FileEntry, pieces: Sequence[Piece]) -> Incoming:
        self._make_room(entry.size_bytes)
        spare = self._spares.take() if entry.size_bytes <= SMALL_BYTES else None
        incoming = Incoming(self.partials.temporary(entry)) if spare is None else Incoming(*spare)
        self.disk.announce(incoming, entry.size_bytes - sum(map(len, pieces)))
        try:
            self._reserve(entry, incoming)
            incoming.write(pieces)
        except OSError:
            self.disk.announce(incoming, 0)
            incoming.abort()
            raise
        return incoming

    def _reserve(self, entry: FileEntry, incoming: Incoming) -> None:
        """What is reserved is announced no more: the disk counts it as used. Raises OSError."""
        incoming.reserve(entry.size_bytes)
        if incoming.reserved:
            self.disk.announce(incoming, 0)

    def _make_room(self, size_bytes: int) -> None:
        """Unfinished files go before a new one is refused; raises NoSpaceError."""
        try:
            self.disk.check(size_bytes)
        except NoSpaceError:
            if not self.partials.clear():
                raise
            self.disk.check(size_bytes)

    def take_partial(self, entry: FileEntry) -> Incoming | None:
        """What a broken transfer has left of the file, if anything. For any thread; blocks.

        Raises NoSpaceError, IntegrityError.
        """
        incoming = self._here(f"{entry.store}/{entry.name}", lambda: self.partials.take(entry))
        if incoming is not None:
            self.disk.announce(incoming, entry.size_bytes - incoming.size_bytes)
        return incoming

    def keep_partial(self, entry: FileEntry, incoming: Incoming) -> None:
        """The transfer has broken: the next one goes on where this one ends. For any thread; blocks.

        Raises NoSpaceError, IntegrityError.
        """
        self.disk.announce(incoming, 0)
        self._here(f"{entry.store}/{entry.name}", lambda: self.partials.keep(entry, incoming))

    async def resume_incoming(self, entry: FileEntry) -> Incoming | None:
        """As `take_partial`, in a thread."""
        if not self.partials.has(entry):
            return None
        taken: list[Incoming | None] = []
        try:
            await self.threads.run(entry.lane, lambda: taken.append(self.take_partial(entry)))
        except asyncio.CancelledError:
            for left in filter(None, taken):
                self.keep_partial(entry, left)
            raise
        return taken[0]

    async def suspend_incoming(self, entry: FileEntry, incoming: Incoming) -> None:
        """As `keep_partial`, in a thread."""
        await self.threads.run(entry.lane, lambda: self.keep_partial(entry, incoming))

    def link_incoming(self, entry: FileEntry, twins: Iterable[StoredFile]) -> Incoming | None:
        """All bytes of the file, from a stored one that has the same; None when they have to come from elsewhere.

        For any thread; blocks.
        """
        for twin in twins:
            try:
                # Under a name that is never taken for a partial file: those are appended to.
                path = self.layout.temporary()
                return Incoming.link_of(self.path(twin.entry), path, Checked(twin.seal, twin.entry.crc32c))
            except (OSError, IntegrityError) as error:  # collected, damaged, too many links
                if isinstance(error, OSError):
                    self.disk.note(error)
                log.info("not linked", extra={"file": entry.name, "to": twin.entry.name, "error": str(error)})
        return None

    def _place(self, entry: FileEntry, incoming: Incoming) -> files.Seal:
        seal = incoming.finish(entry.size_bytes, entry.crc32c)
        hit("store.incoming.rename.before")
        (files.link_in if incoming.linked else files.rename_in)(incoming.path, self.path(entry))
        hit("store.incoming.rename.after")
        return seal

    def _placed(self, entry: FileEntry, incoming: Incoming) -> files.Seal:
        """As `_place`; leaves nothing behind when it fails."""
        try:
            return self._place(entry, incoming)
        except OSError:
            incoming.abort()
            raise

    async def write_incoming(self, entry: FileEntry, incoming: Incoming, pieces: Sequence[Piece]) -> None:
        """As `append_incoming`, in a thread."""
        await self.threads.run(entry.lane, lambda: self.append_incoming(entry, incoming, pieces))

    async def finish_incoming(self, entry: FileEntry, incoming: Incoming) -> StoredFile:
        """Checks the bytes and puts the file into the store; data files and changelogs are visible at once.

        Raises IntegrityError for wrong bytes, AlreadyThereError for a name that has another checksum here,
        UnavailableError when it cannot be synced.
        """
        self.disk.announce(incoming, 0)
        async with self._locks.hold((entry.store, entry.name)):
            if (known := self._records.get((entry.store, entry.name))) is not None:
                await self.threads.run(entry.lane, incoming.abort)
                return _same(known, entry)
            seal = await self._guarded(entry, lambda: self._place(entry, incoming))
            return await self._received(entry, seal, linked=incoming.linked)

    async def receive_whole(self, entry: FileEntry, pieces: Sequence[Piece]) -> StoredFile:
        """As start, write and finish, with one trip to a thread: for files that are here at once."""

        def whole() -> files.Seal:
            return self._placed(entry, self._start(entry, pieces))

        async with self._locks.hold((entry.store, entry.name)):
            if (known := self._records.get((entry.store, entry.name))) is not None:
                return _same(known, entry)
            return await self._received(entry, await self._guarded(entry, whole))

    async def receive_linked(self, entry: FileEntry) -> bool:
        """Makes the file be here without a transfer; false when its bytes are not here under another name.

        Raises as `finish_incoming`.
        """
        async with self._locks.hold((entry.store, entry.name)):
            twins = self.twins(entry)
            if not twins or (entry.store, entry.name) in self._records:
                return False

            def link() -> files.Seal | None:
                incoming = self.link_incoming(entry, twins)
                return None if incoming is None else self._placed(entry, incoming)

            seal = await self._guarded(entry, link)
            if seal is None:
                return False
            await self._received(entry, seal, linked=True)
            return True

    async def _received(self, entry: FileEntry, seal: files.Seal, *, linked: bool = False) -> StoredFile:
        hit("store.incoming.index.before")
        record = StoredFile(entry, seal, time.time_ns(), entry.kind is not FileKind.SNAPSHOT, received=True)
        await self._put(record)
        hit("store.incoming.index.after")
        return await self._keep(record, linked=linked)

    def drop_incoming(self, entry: FileEntry, incoming: Incoming) -> None:
        """For any thread; blocks. Raises NoSpaceError, IntegrityError."""
        self.disk.announce(incoming, 0)
        self._here(f"{entry.store}/{entry.name}", incoming.abort)

    async def abort_incoming(self, entry: FileEntry, incoming: Incoming) -> None:
        """As `drop_incoming`, in a thread."""
        await self.threads.run(entry.lane, lambda: self.drop_incoming(entry, incoming))

    async def _put(self, record: StoredFile) -> None:
        """Into the index, or off the disk: raises NoSpaceError, IntegrityError."""
        entry = record.entry
        try:
            self._write_index(f"{entry.store}/{entry.name}", lambda: self._index.put_file(record))
        except RhinoError:
            await self._guarded(entry, lambda: self.path(entry).unlink(missing_ok=True))
            raise

    def synced(self, store: StoreId) -> bool:
        """Whether its files count only once they are synced."""
        return self.promises.of(store.job) is Durability.SYNCED

    async def _keep(self, record: StoredFile, *, linked: bool = False) -> StoredFile:
        """Into the catalogue, after which the file counts: so if need be it is synced before.

        `linked`: its bytes were not read, for they are those of a stored file. Raises IntegrityError if they are wrong.
        """
        if self.synced(record.entry.store):
            await self.syncer.sync(self.path(record.entry), record.entry.lane)
        if linked and not self.hard_links(record.entry):
            await self._check_unlinked(record)
        self._enter(record)
        return record

    async def _check_unlinked(self, record: StoredFile) -> None:
        """The file that it is a link of has been dropped meanwhile: perhaps because it was damaged."""
        entry, path = record.entry, self.path(record.entry)
        if await self._guarded(entry, lambda: files.verify(path, record.seal, entry.crc32c, deep=True)):
            return
        self._write_index(f"{entry.store}/{entry.name}", lambda: self._index.delete_files(entry.store, [entry.name]))
        await self._guarded(entry, lambda: path.unlink(missing_ok=True))
        raise IntegrityError(f"{entry.store}/{entry.name}: its bytes, those of {entry.same_as}, are damaged")

    async def damaged(self, store: StoreId, names: Iterable[str]) -> list[str]:
        """Names whose file is not as it was stored: sizes and times always, changelogs and zips byte by byte."""
        records = [record for name in names if (record := self._records.get((store, name)))]

        def check() -> list[str]:
            return [
                r.entry.name
                for r in records
                if not files.verify(self.path(r.entry), r.seal, r.entry.crc32c, deep=r.entry.kind.versioned)
            ]

        return await self.threads.run(Lane.COMMIT, check)


def _same(known: StoredFile, entry: FileEntry) -> StoredFile:
    """`known`; raises AlreadyThereError unless `entry` has the same bytes."""
    if (known.entry.crc32c, known.entry.size_bytes) != (entry.crc32c, entry.size_bytes):
        raise AlreadyThereError(f"{entry.store}/{entry.name} is here with another checksum")
    return known
