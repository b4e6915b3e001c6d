"""The store of one sidecar: immutable files on local disk, their index, pins and floors.

One asyncio loop owns it: the catalogue and the records change on the loop only; blocking work runs in two small
thread pools, one for what somebody waits for and one for data files. Order of a new file: bytes, rename, index, sync
(`synced` jobs), catalogue, and only then may anybody be told (kill -9 at any moment loses nothing acknowledged).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from rhino.errors import AlreadyThereError, InvalidRequestError, NoSpaceError, PreconditionError, RhinoError
from rhino.failpoints import hit
from rhino.ids import Durability, Epoch, FileEntry, FileKind, GroupId, Lane, StoreId, StoreVersion, Version, parse_name
from worker_runtime.core.closure import Catalogue, collectable, kept_names, raise_floor
from worker_runtime.storage import files, recovery
from worker_runtime.storage.disk import Disk
from worker_runtime.storage.durability import Promises
from worker_runtime.storage.files import Incoming, Layout, Piece
from worker_runtime.storage.index import Index, StoredFile
from worker_runtime.storage.locks import KeyedLocks
from worker_runtime.storage.partials import Partials
from worker_runtime.storage.syncer import Syncer, require_no_failure_before

log = logging.getLogger(__name__)
T = TypeVar("T")
Key = tuple[StoreId, str]


@dataclass(frozen=True, slots=True)
class _Checked:
    checked: files.Checked
    references: tuple[str, ...]
    identity: tuple[int, int]


class Store:
    """See the module. Make one with `Store.open` (blocking)."""

    def __init__(self, worker_id: str, layout: Layout, index: Index, syncer: Syncer, reserve_bytes: int) -> None:
        self.layout = layout
        self.catalogue = Catalogue()
        self.incarnation = ""
        self._worker_id = worker_id
        self._index = index
        self.disk = Disk(layout.store, reserve_bytes)
        self.syncer = syncer
        self.promises = Promises(index, syncer)
        self._records: dict[Key, StoredFile] = {}
        self._group_bytes: Counter[GroupId] = Counter()
        self._floors: dict[StoreId, Version] = index.floors()
        self._pins: dict[str, Counter[StoreVersion]] = {}
        self.partials = Partials(layout)
        self._locks = KeyedLocks()
        self._protected: Counter[Key] = Counter()  # referenced by zips that are being taken over
        self._device = os.stat(layout.store).st_dev
        self._pools = {
            Lane.COMMIT: ThreadPoolExecutor(4, thread_name_prefix="store-commit"),
            Lane.BULK: ThreadPoolExecutor(3, thread_name_prefix="store-bulk"),
        }

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
        if same_boot and any(store.synced(of) for of, _ in store._records):
            syncer.sync_everything()  # a former process may have been killed before a sync
        return store

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown()
        self.syncer.close()
        self._index.close()

    async def _guarded(self, entry: FileEntry, work: Callable[[], T]) -> T:
        """As `run`; errors of the disk become NoSpaceError or IntegrityError."""
        return await self._run_guarded(entry.lane, f"{entry.store}/{entry.name}", work)

    async def _run_guarded(self, lane: Lane, doing: str, work: Callable[[], T]) -> T:
        def guarded() -> T:
            try:
                return work()
            except OSError as error:
                raise self.disk.error(error, doing) from error

        return await self.run(lane, guarded)

    def _write_index(self, doing: str, write: Callable[[], None]) -> None:
        """Raises NoSpaceError, IntegrityError. An index that was stuck when the disk was full is opened anew."""
        try:
            write()
        except Exception as error:  # the binding knows no narrower class
            if not self.disk.has_room_again(error):
                raise self.disk.index_error(error, doing) from error
            try:
                self._index.reopen()
                log.warning("index opened anew: the disk has room again")
                write()
            except Exception as again:
                raise self.disk.index_error(again, doing) from again

    async def run(self, lane: Lane, work: Callable[[], T]) -> T:
        """Blocking work in the lane's pool. A cancelled caller waits until the thread has let go of its files."""
        future = asyncio.get_running_loop().run_in_executor(self._pools[lane], work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({future})
            raise

    # ------------------------------------------------------------ questions

    def record(self, store: StoreId, name: str) -> StoredFile | None:
        return self._records.get((store, name))

    def path(self, entry: FileEntry) -> Path:
        return self.layout.path(entry.store, entry.name)

    def entries(self) -> list[FileEntry]:
        """Everything that is stored here, in a stable order."""
        return [self._records[key].entry for key in sorted(self._records)]

    def memo(self, key: str) -> str | None:
        """What `put_memo` kept under this key, also over restarts."""
        return self._index.meta(key)

    def spread(self, job: str) -> None:
        """The job's files are blocks: what is here never tells what others need of them, so nothing is collected."""
        if not self.is_spread(job):
            self.put_memo(f"spread/{job}", "1")

    def is_spread(self, job: str) -> bool:
        return self.memo(f"spread/{job}") is not None

    def put_memo(self, key: str, value: str) -> None:
        """Raises NoSpaceError, IntegrityError."""
        self._write_index(key, lambda: self._index.put_meta(key, value))

    def visible_files(self, store: StoreId) -> list[StoredFile]:
        names = sorted(entry.name for entry in self.catalogue.store(store).entries())
        return [record for name in names if (record := self._records[store, name]).visible]

    def epochs(self) -> dict[GroupId, Epoch]:
        return self._index.epochs()

    def fences(self) -> dict[str, Epoch]:
        """Forgotten jobs, with the epoch below which nothing of them counts."""
        return self._index.fences()

    def floor(self, store: StoreId) -> Version | None:
        return self._floors.get(store)

    def floors_of(self, group: GroupId) -> list[StoreVersion]:
        return [StoreVersion(store, floor) for store, floor in self._floors.items() if store.group == group]

    def stored_bytes(self, group: GroupId | None = None) -> int:
        return self._group_bytes.total() if group is None else self._group_bytes[group]

    def free_bytes(self) -> int:
        return self.disk.free_bytes()

    def capacity_bytes(self) -> int:
        status = os.statvfs(self.layout.store)
        return status.f_blocks * status.f_frsize

    def inventory(self, group: GroupId) -> list[FileEntry]:
        """What others may want of a group: everything that the floors here do not let go."""
        found: list[FileEntry] = []
        for store, catalogue in self.catalogue.stores(group).items():
            kept = None if self.is_spread(group.job) else kept_names(catalogue, self.floor(store))
            found += [entry for entry in catalogue.entries() if kept is None or entry.name in kept]
        return found

    def newest_held(self, group: GroupId) -> list[StoreVersion]:
        stores = self.catalogue.stores(group)
        return [StoreVersion(s, held) for s, c in stores.items() if (held := c.newest_held()) is not None]

    def newest_written(self, group: GroupId) -> list[StoreVersion]:
        """Per store the highest version that an executor of this worker wrote and that was committed."""
        newest: dict[StoreId, Version] = {}
        for store, catalogue in self.catalogue.stores(group).items():
            for file in catalogue.files():
                if file.version and file.entry.written_by == self._worker_id and self._visible(file.entry):
                    newest[store] = max(newest.get(store, file.version), file.version)
        return [StoreVersion(store, version) for store, version in newest.items()]

    def written_here(self, version: StoreVersion) -> bool:
        catalogue = self.catalogue.store(version.store)
        entries = [catalogue.get(f"{version.version}.{end}") for end in ("changelog", "zip")]
        return any(entry is not None and entry.written_by == self._worker_id for entry in entries)

    def _visible(self, entry: FileEntry) -> bool:
        return self._records[entry.store, entry.name].visible

    # ------------------------------------------------------------ new files

    async def take_over(
        self, store: StoreId, name: str, inbox_file: Path, lineage: tuple[Version, ...] = ()
    ) -> StoredFile:
        """Takes a client's file out of its inbox into the store, hidden if it is a changelog or a zip.

        The same file again is fine. Raises AlreadyThereError for another one of the same name, PreconditionError for
        a zip of which a file is missing here, NoSpaceError, InvalidRequestError, UnknownError, UnavailableError when
        it cannot be synced.
        """
        kind = parse_name(name).kind
        lane = Lane.COMMIT if kind.versioned else Lane.BULK
        async with self._locks.hold((store, name)):
            known, doing, path = self._records.get((store, name)), f"{store}/{name}", self.layout.path(store, name)

            def take() -> _Checked:
                checked = self._check_inbox(inbox_file, kind)
                if known is None and not checked.references:  # one trip to a thread for all but zips
                    files.move_in(inbox_file, path, checked.identity)
                return checked

            checked = await self._run_guarded(lane, doing, take)
            if known is not None:
                return await self._same_again(known, checked.checked, inbox_file)
            seal, crc = checked.checked.seal, checked.checked.crc32c
            entry = FileEntry(store, name, seal.size_bytes, crc, lineage, checked.references, self._worker_id)
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
                return await self._keep(record)
            finally:
                self._protected.subtract(protected)
                self._protected = +self._protected

    def _check_inbox(self, path: Path, kind: FileKind) -> _Checked:
        self.disk.check()
        checked, identity = files.check_inbox_file(path, self._device)
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

    async def _same_again(self, known: StoredFile, checked: files.Checked, inbox_file: Path) -> StoredFile:
        entry = known.entry
        if (entry.crc32c, entry.size_bytes) != (checked.crc32c, checked.seal.size_bytes):
            raise AlreadyThereError(
                f"{entry.store}/{entry.name} is here with {entry.size_bytes} bytes and crc32c {entry.crc32c:08x}; "
                f"offered {checked.seal.size_bytes} bytes with {checked.crc32c:08x}"
            )
        hit("store.inbox.unlink.before")
        await self.run(Lane.COMMIT, lambda: inbox_file.unlink(missing_ok=True))
        hit("store.inbox.unlink.after")
        return known

    async def start_incoming(self, entry: FileEntry, pieces: Sequence[Piece] = ()) -> Incoming:
        """A temporary file for bytes from another worker, with the first ones. Raises NoSpaceError, IntegrityError."""

        made: list[Incoming] = []
        try:
            await self._guarded(entry, lambda: made.append(self._start(entry, pieces)))
        except asyncio.CancelledError:
            for incoming in made:  # nobody gets it: its stream has ended meanwhile
                self.disk.announce(incoming, 0)
                incoming.abort()
            raise
        return made[0]

    def _start(self, entry: FileEntry, pieces: Sequence[Piece]) -> Incoming:
        self._make_room(entry.size_bytes)
        incoming = Incoming(self.partials.temporary(entry))
        self.disk.announce(incoming, entry.size_bytes - sum(map(len, pieces)))
        try:
            incoming.write(pieces)
        except OSError:
            self.disk.announce(incoming, 0)
            incoming.abort()
            raise
        return incoming

    def _make_room(self, size_bytes: int) -> None:
        """Unfinished files go before a new one is refused; raises NoSpaceError."""
        try:
            self.disk.check(size_bytes)
        except NoSpaceError:
            if not self.partials.clear():
                raise
            self.disk.check(size_bytes)

    async def resume_incoming(self, entry: FileEntry) -> Incoming | None:
        """What a broken transfer has left of the file, if anything. Raises NoSpaceError, IntegrityError."""
        if not self.partials.has(entry):
            return None
        taken: list[Incoming | None] = []
        try:
            await self._guarded(entry, lambda: taken.append(self.partials.take(entry)))
        except asyncio.CancelledError:
            for left in filter(None, taken):
                self.partials.keep(entry, left)
            raise
        incoming = taken[0]
        if incoming is not None:
            self.disk.announce(incoming, entry.size_bytes - incoming.size_bytes)
        return incoming

    async def suspend_incoming(self, entry: FileEntry, incoming: Incoming) -> None:
        """The transfer has broken: the next one goes on where this one ends. Raises NoSpaceError, IntegrityError."""
        self.disk.announce(incoming, 0)
        await self._guarded(entry, lambda: self.partials.keep(entry, incoming))

    def _place(self, entry: FileEntry, incoming: Incoming) -> files.Seal:
        seal = incoming.finish(entry.size_bytes, entry.crc32c)
        target = self.path(entry)
        target.parent.mkdir(parents=True, exist_ok=True)
        hit("store.incoming.rename.before")
        incoming.path.rename(target)
        hit("store.incoming.rename.after")
        return seal

    async def write_incoming(self, entry: FileEntry, incoming: Incoming, pieces: Sequence[Piece]) -> None:
        """Appends; raises NoSpaceError, IntegrityError."""
        await self._guarded(entry, lambda: incoming.write(pieces))
        self.disk.announce(incoming, entry.size_bytes - incoming.size_bytes)

    async def finish_incoming(
        self, entry: FileEntry, incoming: Incoming, placed: Callable[[], None] = lambda: None
    ) -> StoredFile:
        """Checks the bytes and puts the file into the store; data files and changelogs are visible at once.

        `placed` is called when only the sync is left. Raises IntegrityError for wrong bytes, AlreadyThereError for a
        name that has another checksum here, UnavailableError when it cannot be synced.
        """
        self.disk.announce(incoming, 0)
        async with self._locks.hold((entry.store, entry.name)):
            if (known := self._records.get((entry.store, entry.name))) is not None:
                await self.run(entry.lane, incoming.abort)
                return _same(known, entry)
            seal = await self._guarded(entry, lambda: self._place(entry, incoming))
            return await self._received(entry, seal, placed)

    async def receive_whole(
        self, entry: FileEntry, pieces: Sequence[Piece], placed: Callable[[], None] = lambda: None
    ) -> StoredFile:
        """As start, write and finish, with one trip to a thread: for files that are here at once."""

        def whole() -> files.Seal:
            incoming = self._start(entry, pieces)
            try:
                return self._place(entry, incoming)
            except OSError:
                incoming.abort()
                raise

        async with self._locks.hold((entry.store, entry.name)):
            if (known := self._records.get((entry.store, entry.name))) is not None:
                return _same(known, entry)
            return await self._received(entry, await self._guarded(entry, whole), placed)

    async def _received(self, entry: FileEntry, seal: files.Seal, placed: Callable[[], None]) -> StoredFile:
        hit("store.incoming.index.before")
        record = StoredFile(entry, seal, time.time_ns(), entry.kind is not FileKind.SNAPSHOT, received=True)
        await self._put(record)
        hit("store.incoming.index.after")
        placed()
        return await self._keep(record)

    async def abort_incoming(self, entry: FileEntry, incoming: Incoming) -> None:
        self.disk.announce(incoming, 0)
        await self._guarded(entry, incoming.abort)

    def make_visible(self, store: StoreId, name: str) -> None:
        """When the index cannot be written, for this life only: after a restart Prepare shows what is committed."""
        record = self._records.get((store, name))
        if record is not None and not record.visible:
            record = self._records[store, name] = replace(record, visible=True)
            hit("store.make_visible.index.before")
            try:
                self._write_index(f"{store}/{name}", lambda: self._index.put_file(record))
            except RhinoError as error:
                log.error("visible for now only", extra={"file": f"{store}/{name}", "error": str(error)})
            hit("store.make_visible.index.after")

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

    async def _keep(self, record: StoredFile) -> StoredFile:
        """Into the catalogue, after which the file counts: so if need be it is synced before."""
        if self.synced(record.entry.store):
            await self.syncer.sync(self.path(record.entry), record.entry.lane)
        self._enter(record)
        return record

    def _enter(self, record: StoredFile) -> None:
        self._records[record.entry.store, record.entry.name] = record
        self._group_bytes[record.entry.store.group] += record.entry.size_bytes
        self.catalogue.add(record.entry, record.arrived_ns / 1e9)

    # ------------------------------------------------------------ pins, floors, removal

    def pin(self, session: str, versions: Iterable[StoreVersion]) -> None:
        """Versions stay until as many releases, or the end of the session."""
        self._pins.setdefault(session, Counter()).update(versions)

    def unpin(self, session: str, versions: Iterable[StoreVersion]) -> None:
        pins = self._pins.get(session, Counter())
        for version in versions:
            if pins[version] > 1:
                pins[version] -= 1
            else:
                del pins[version]

    def end_session(self, session: str) -> None:
        self._pins.pop(session, None)

    def pinned(self, store: StoreId) -> set[Version]:
        return {v.version for pins in self._pins.values() for v in pins if v.store == store}

    def put_epoch(self, group: GroupId, epoch: Epoch) -> None:
        """Raises NoSpaceError, IntegrityError: nothing that follows from the epoch may be done then."""
        hit("store.epoch.before")
        self._write_index(f"epoch of {group}", lambda: self._index.put_epoch(group, epoch))
        hit("store.epoch.after")

    def raise_floor(self, store: StoreId, floor: Version) -> bool:
        """Floors only rise; true when this one did."""
        current = self._floors.get(store)
        if raise_floor(current, floor) == current:
            return False
        self._floors[store] = floor
        hit("store.floor.before")
        try:
            self._write_index(f"floor of {store}", lambda: self._index.put_floor(store, floor))
        except RhinoError as error:  # the manager will say it again
            log.error("floor not kept", extra={"store": str(store), "error": str(error)})
        hit("store.floor.after")
        return True

    def protected(self, store: StoreId) -> set[str]:
        """Names that a zip which is being taken over needs."""
        return {name for (of, name), count in self._protected.items() if of == store and count > 0}

    async def collect(self, store: StoreId, busy: Iterable[str]) -> tuple[str, ...]:
        """Deletes what no version at or above the floor, no pin and nothing in `busy` needs; returns the names."""
        if self.is_spread(store.job):
            return ()
        kept = self.protected(store).union(busy)
        names = collectable(self.catalogue.store(store), self.floor(store), self.pinned(store), kept)
        await self.remove(store, names)
        return names

    async def remove(self, store: StoreId, names: Iterable[str]) -> None:
        """Out of the index at once, then off the disk; in this order also if the process dies in between.

        Raises NoSpaceError, IntegrityError when the index cannot be written: nothing is removed then.
        """
        present = [name for name in names if (store, name) in self._records]
        if not present:
            return
        hit("store.remove.index.before")
        self._write_index(str(store), lambda: self._index.delete_files(store, present))
        hit("store.remove.index.after")
        graves: list[Path] = []
        for name in present:
            record = self._records.pop((store, name))
            self._group_bytes[store.group] -= record.entry.size_bytes
            self.catalogue.discard(store, name)
            grave = self.layout.temporary()
            try:
                # Renamed here and now, so that a new file of the same name cannot be hit by the slow deletion.
                hit("store.remove.bury.before")
                self.path(record.entry).rename(grave)
                hit("store.remove.bury.after")
                graves.append(grave)
            except FileNotFoundError:
                continue
            except OSError as error:  # out of the index it is: the next start deletes it
                self.disk.note(error)
                log.error("cannot delete", extra={"file": f"{store}/{name}", "error": str(error)})
        await self._run_guarded(Lane.BULK, str(store), lambda: files.unlink_all(graves))

    def drop_job(self, job: str, fence: Epoch, groups: Iterable[GroupId]) -> int:
        """Persists the fence and forgets these groups at once, then deletes in the background; the number of files."""
        gone = set(groups)
        keys = [key for key in self._records if key[0].group in gone] if gone else []
        self._write_index(f"job {job}", lambda: self._index.drop_job(job, fence, gone, keys))
        for key in keys:
            del self._records[key]
        for group in gone:
            del self._group_bytes[group]
            self.catalogue.forget(group)
        self._floors = {store: floor for store, floor in self._floors.items() if store.group not in gone}
        graves = [grave for group in sorted(gone) if (grave := self._bury(self.layout.group(group))) is not None]
        if not self.catalogue.job_known(job) and (grave := self._bury(self.layout.store / job)) is not None:
            graves.append(grave)
        for grave in graves:
            self.discard_folder(grave)
        self._pools[Lane.BULK].submit(self.partials.clear)  # their names do not say of which job they are
        return len(keys)

    def _bury(self, folder: Path) -> Path | None:
        """Moves a folder out of sight; None when there is none."""
        grave = self.layout.temporary()
        try:
            folder.rename(grave)
        except FileNotFoundError:
            return None
        return grave

    def discard_folder(self, folder: Path) -> None:
        """Removes a folder some time soon; leftovers go at the next start."""
        self._pools[Lane.BULK].submit(shutil.rmtree, folder, ignore_errors=True)

    async def damaged(self, store: StoreId, names: Iterable[str]) -> list[str]:
        """Names whose file is not as it was stored: sizes and times always, changelogs and zips byte by byte."""
        records = [record for name in names if (record := self._records.get((store, name)))]

        def check() -> list[str]:
            return [
                r.entry.name
                for r in records
                if not files.verify(self.path(r.entry), r.seal, r.entry.crc32c, deep=r.entry.kind.versioned)
            ]

        return await self.run(Lane.COMMIT, check)


def _same(known: StoredFile, entry: FileEntry) -> StoredFile:
    """`known`; raises AlreadyThereError unless `entry` has the same bytes."""
    if (known.entry.crc32c, known.entry.size_bytes) != (entry.crc32c, entry.size_bytes):
        raise AlreadyThereError(f"{entry.store}/{entry.name} is here with another checksum")
    return known
