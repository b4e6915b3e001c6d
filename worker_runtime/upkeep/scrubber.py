"""Scrub: reads every stored file periodically and compares its checksum (ARCHITECTURE.md, "Scrub").

So damage is found while other workers still have an intact copy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

from crc32c import crc32c

from rhino_core.errors import RhinoError
from rhino_core.ids import FileEntry, Lane, StoreId
from rhino_core.retry import FILE_PAUSE_S
from worker_runtime.fetch.throttle import Throttle
from worker_runtime.protocol.versions.closure import StoreCatalogue, kept_names
from worker_runtime.replication import Replication
from worker_runtime.statistics import wall_ms
from worker_runtime.storage.disk.files import NOT_THE_FILE, read_pieces
from worker_runtime.storage.keeping.scrub_round import Damage, ScrubRound

log = logging.getLogger(__name__)
PIECE_BYTES = 1024 * 1024
LOOK_S = 0.3  # minimum interval between checks whether damage has been repaired
SAVE_S = 1.0  # minimum interval between saves of the position: a restarted sidecar reads that much again
METADATA_KEY = "scrub"


class Scrubber:
    """Starts a scrub every `period_s` at `bytes_per_s` (if either is 0, only on request) and on every request.

    Anyone may send requests repeatedly. So a requested scrub yields to commits and loads. Before it starts reading, it
    pauses for as long as the previous requested scrub has read.

    A damaged or missing file is dropped, and the group's catch-up fetches it again.
    """

    def __init__(self, replication: Replication, period_s: float, bytes_per_s: int) -> None:
        self._replication = replication
        self._store = replication.store
        self._period_s = period_s if bytes_per_s else 0.0
        self._bytes_per_s = bytes_per_s
        saved = self._store.index.metadata(METADATA_KEY)
        self._round = ScrubRound.from_json(saved) if saved else ScrubRound()
        self._saved_at = self._looked_at = 0.0
        self._asked = asyncio.Event()
        self._rests_until = float("-inf")  # monotonic seconds
        self._read_at = float("-inf")
        self.found = 0  # damaged or missing files since start

    def start_now(self) -> ScrubRound:
        """Starts a scrub at full pace in place of a slow one. Joins a running or pausing scrub at full pace."""
        if not (self._round.running and self._round.full_pace):
            self._begin(full_pace=True)
            self._asked.set()
        return self.status()

    def status(self) -> ScrubRound:
        """The newest scrub. Repairs since its end are included."""
        if self._round.damaged and time.monotonic() - self._looked_at >= LOOK_S:
            self._looked_at = time.monotonic()
            missed = self._missed(self._round.damaged)
            if len(missed) < len(self._round.damaged):
                self._round.damaged = missed
                self._save()
        return self._round

    async def run(self) -> None:
        """Runs scrubs. Begins with one after a reboot, unless all files were read at the start."""
        if self._store.partly_read and self._period_s and not self._round.running:
            self._begin(full_pace=False)
        while True:
            self._asked.clear()
            if self._due():
                await self._check_files(self._round)
            else:
                await self._pause()

    # ------------------------------------------------------------ schedule

    def _due(self) -> bool:
        return self._round.running and (self._round.full_pace or self._period_s > 0)

    async def _pause(self) -> None:
        """Waits until a period after the start of the newest scrub, or until a request."""
        begun_s_ago = time.time() - self._round.started_ms / 1000
        left_s = min(self._period_s - begun_s_ago, self._period_s) if self._period_s else None
        try:
            async with asyncio.timeout(left_s):
                await self._asked.wait()
        except TimeoutError:
            self._begin(full_pace=False)

    def _begin(self, *, full_pace: bool) -> None:
        total, former = self._store.files.stored_bytes(), self.status()
        missed = [one for one in former.damaged if self._member(one)]
        self._round = former.next(full_pace=full_pace, total_bytes=total, started_ms=wall_ms(), damaged=missed)
        self._save()
        log.info("scrub begins", extra={"scrub": self._round.number, "bytes": total, "full_pace": full_pace})

    # ------------------------------------------------------------ checking

    async def _check_files(self, scrub: ScrubRound) -> None:
        """Checks all files behind the position, until the end or until another scrub replaces this one."""
        throttle = Throttle(0 if scrub.full_pace else self._bytes_per_s)
        if scrub.full_pace:
            await asyncio.sleep(max(self._rests_until - time.monotonic(), 0.0))
        begun = time.monotonic()
        for entry in self._store.files.entries():
            key = (entry.store, entry.name)
            if scrub.position is not None and key <= scrub.position:
                continue
            await self._check(entry, scrub, throttle)
            if self._round is not scrub:
                return
            scrub.position = key
            if time.monotonic() - self._saved_at >= SAVE_S:
                self._save()
        if scrub.full_pace:
            self._rests_until = 2 * time.monotonic() - begun
        scrub.running, scrub.position, scrub.finished_ms = False, None, wall_ms()
        self._save()
        extra = {"scrub": scrub.number, "files": scrub.checked_files, "errors": scrub.errors}
        log.info("scrub ended", extra=extra)

    async def _check(self, entry: FileEntry, scrub: ScrubRound, throttle: Throttle) -> None:
        before = scrub.checked_bytes
        sound = not self._here(entry) or await self._sound(entry, scrub, throttle)
        if self._here(entry):
            scrub.checked_bytes = before + entry.size_bytes
            scrub.checked_files += 1
            if not sound:
                self._round.errors += 1
                self.found += 1
                self._round.damaged.append(Damage(entry.store, entry.name, entry.references))
                await self._drop(entry)
        else:
            scrub.checked_bytes = before

    async def _drop(self, entry: FileEntry) -> None:
        try:
            await self._replication.drop_damaged(entry.store, [entry.name])
        except RhinoError as error:  # the next scrub finds it again
            log.error("cannot drop a damaged file", extra={"file": f"{entry.store}/{entry.name}", "error": str(error)})

    def _here(self, entry: FileEntry) -> bool:
        """Whether the file has not been collected or replaced meanwhile."""
        record = self._store.files.record(entry.store, entry.name)
        return record is not None and record.entry is entry

    async def _sound(self, entry: FileEntry, scrub: ScrubRound, throttle: Throttle) -> bool:
        while True:
            try:
                return await self._matches(entry, scrub, throttle)
            except OSError as error:
                extra = {"file": f"{entry.store}/{entry.name}", "error": str(error)}
                log.warning("scrub could not read a file", extra=extra)
                self._store.disk.record_error(error)
                if error.errno not in NOT_THE_FILE:
                    return False
            await asyncio.sleep(FILE_PAUSE_S)

    async def _matches(self, entry: FileEntry, scrub: ScrubRound, throttle: Throttle) -> bool:
        """Reads the file piece by piece and compares size and checksum. Raises OSError."""
        pieces = read_pieces(self._store.files.path(entry), PIECE_BYTES)
        before, size, crc = scrub.checked_bytes, 0, 0
        while size <= entry.size_bytes:
            await throttle.spend(min(PIECE_BYTES, entry.size_bytes - size))
            if scrub.full_pace:
                self._read_at = await self._replication.precedence.yield_to_commits(self._read_at)
            length, crc = await self._store.threads.run(Lane.BULK, lambda crc=crc: _piece(pieces, crc))  # type: ignore[misc]
            if length == 0 or self._round is not scrub:
                break
            size += length
            scrub.checked_bytes = before + size
        return self._round is not scrub or (size, crc) == (entry.size_bytes, entry.crc32c)

    def _missed(self, damaged: list[Damage]) -> list[Damage]:
        """Damaged files still missing although retention would keep them. Files of forgotten jobs do not count."""
        gone: dict[StoreId, list[Damage]] = {}
        for one in damaged:
            here = self._store.files.record(one.store, one.name) is not None
            if not here and not self._replication.view.forgotten(one.store.group):
                gone.setdefault(one.store, []).append(one)
        missed = {one for store, ones in gone.items() for one in self._still_needed(store, ones)}
        return [one for one in damaged if one in missed]

    def _still_needed(self, store: StoreId, gone: list[Damage]) -> list[Damage]:
        """Files that retention would keep if they were here with the oldest possible arrival time."""
        here = self._store.catalogue.store(store)
        catalogue = StoreCatalogue(first_snapshots=here.first_snapshots)
        for file in here.files():
            catalogue.add(file.entry, file.arrived_s)
        for one in gone:
            catalogue.add(FileEntry(store, one.name, 0, 0, references=one.references), float("-inf"))
        kept = kept_names(catalogue, self._store.retention.floor(store))
        return [one for one in gone if one.name in kept]

    def _member(self, damage: Damage) -> bool:
        """Whether catch-up will bring the file back here."""
        group = self._replication.group(damage.store.group)
        return group is not None and group.member(self._replication.me.worker_id) is not None

    # ------------------------------------------------------------ persistence

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        try:
            self._store.index.put_metadata(METADATA_KEY, self._round.to_json())
        except RhinoError as error:  # the only effect is that a restart repeats a part
            log.warning("position of the scrub not kept", extra={"error": str(error)})


def _piece(pieces: Iterator[bytes], crc: int) -> tuple[int, int]:
    """Length of the next piece, and the checksum including it."""
    data = next(pieces, b"")
    return len(data), crc32c(data, crc)
