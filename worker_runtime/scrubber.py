"""Scrub: reads every stored file now and then and compares its checksum, so that damage is found while other workers
still have a good copy (ARCHITECTURE.md, "Scrub").
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

from crc32c import crc32c

from rhino.errors import RhinoError
from rhino.ids import FileEntry, Lane, StoreId
from worker_runtime.core.closure import StoreCatalogue, kept_names
from worker_runtime.figures import wall_ms
from worker_runtime.replication import Replication
from worker_runtime.scrub_round import Damage, ScrubRound
from worker_runtime.storage.files import NOT_THE_FILE, read_pieces
from worker_runtime.throttle import Throttle

log = logging.getLogger(__name__)
PIECE_BYTES = 1024 * 1024
LOOK_S = 0.3  # whether damage is repaired is looked at this often at most
SAVE_S = 1.0  # the position is written down at most this often: a restarted sidecar reads that much again
RETRY_S = 1.0  # before a file is read again that could not be opened through no fault of its own
MEMO = "scrub"


class Scrubber:
    """Begins a scrub every `period_s` at `bytes_per_s` (either 0: none by itself) and whenever it is asked to.

    A damaged or missing file is dropped, and the group's catch-up fetches it again.
    """

    def __init__(self, replication: Replication, period_s: float, bytes_per_s: int) -> None:
        self._replication = replication
        self._store = replication.store
        self._period_s = period_s if bytes_per_s else 0.0
        self._bytes_per_s = bytes_per_s
        saved = self._store.memo(MEMO)
        self._round = ScrubRound.from_json(saved) if saved else ScrubRound()
        self._saved_at = self._looked_at = 0.0
        self._asked = asyncio.Event()
        self.found = 0  # damaged or missing files since start

    def start_now(self) -> ScrubRound:
        """Begins a scrub at full pace, in place of a slow one; joins one that runs at full pace already."""
        if not (self._round.running and self._round.full_pace):
            self._begin(full_pace=True)
            self._asked.set()
        return self.status()

    def status(self) -> ScrubRound:
        """The newest scrub; what has been repaired since it ended counts as well."""
        if self._round.damaged and time.monotonic() - self._looked_at >= LOOK_S:
            self._looked_at = time.monotonic()
            missed = self._missed(self._round.damaged)
            if len(missed) < len(self._round.damaged):
                self._round.damaged = missed
                self._save()
        return self._round

    async def run(self) -> None:
        while True:
            self._asked.clear()
            if self._due():
                await self._work_off(self._round)
            else:
                await self._pause()

    # ------------------------------------------------------------ when

    def _due(self) -> bool:
        return self._round.running and (self._round.full_pace or self._period_s > 0)

    async def _pause(self) -> None:
        """Until a period after the newest scrub began, or until somebody asks for one."""
        begun_s_ago = time.time() - self._round.started_ms / 1000
        left_s = min(self._period_s - begun_s_ago, self._period_s) if self._period_s else None
        try:
            async with asyncio.timeout(left_s):
                await self._asked.wait()
        except TimeoutError:
            self._begin(full_pace=False)

    def _begin(self, *, full_pace: bool) -> None:
        total, former = self._store.stored_bytes(), self.status()
        missed = [one for one in former.damaged if self._member(one)]
        self._round = former.next(full_pace=full_pace, total_bytes=total, started_ms=wall_ms(), damaged=missed)
        self._save()
        log.info("scrub begins", extra={"scrub": self._round.number, "bytes": total, "full_pace": full_pace})

    # ------------------------------------------------------------ checking

    async def _work_off(self, scrub: ScrubRound) -> None:
        """All files behind the position, until the end or until another scrub takes its place."""
        throttle = Throttle(0 if scrub.full_pace else self._bytes_per_s)
        for entry in self._store.entries():
            key = (entry.store, entry.name)
            if scrub.position is not None and key <= scrub.position:
                continue
            await self._check(entry, scrub, throttle)
            if self._round is not scrub:
                return
            scrub.position = key
            self._save_sometimes()
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
        """The file has not been collected or replaced meanwhile."""
        record = self._store.record(entry.store, entry.name)
        return record is not None and record.entry is entry

    async def _sound(self, entry: FileEntry, scrub: ScrubRound, throttle: Throttle) -> bool:
        while True:
            try:
                return await self._matches(entry, scrub, throttle)
            except OSError as error:
                extra = {"file": f"{entry.store}/{entry.name}", "error": str(error)}
                log.warning("scrub could not read a file", extra=extra)
                self._store.disk.note(error)
                if error.errno not in NOT_THE_FILE:
                    return False
            await asyncio.sleep(RETRY_S)

    async def _matches(self, entry: FileEntry, scrub: ScrubRound, throttle: Throttle) -> bool:
        """Reads the file piece by piece; raises OSError."""
        pieces = read_pieces(self._store.path(entry), PIECE_BYTES)
        before, size, crc = scrub.checked_bytes, 0, 0
        while size <= entry.size_bytes:
            await throttle.spend(min(PIECE_BYTES, entry.size_bytes - size))
            length, crc = await self._store.threads.run(Lane.BULK, lambda crc=crc: _piece(pieces, crc))  # type: ignore[misc]
            if length == 0 or self._round is not scrub:
                break
            size += length
            scrub.checked_bytes = before + size
        return self._round is not scrub or (size, crc) == (entry.size_bytes, entry.crc32c)

    def _missed(self, damaged: list[Damage]) -> list[Damage]:
        """Files that are not here again although a floor asks for them; those of forgotten jobs are not missed."""
        gone: dict[StoreId, list[Damage]] = {}
        for one in damaged:
            here = self._store.record(one.store, one.name) is not None
            if not here and not self._replication.machine.forgotten(one.store.group):
                gone.setdefault(one.store, []).append(one)
        missed = {one for store, ones in gone.items() for one in self._still_needed(store, ones)}
        return [one for one in damaged if one in missed]

    def _still_needed(self, store: StoreId, gone: list[Damage]) -> list[Damage]:
        """Those that retention would keep if they were here, as old as can be."""
        if self._store.is_spread(store.job):
            return gone
        catalogue = StoreCatalogue()
        for file in self._store.catalogue.store(store).files():
            catalogue.add(file.entry, file.arrived_s)
        for one in gone:
            catalogue.add(FileEntry(store, one.name, 0, 0, references=one.references), float("-inf"))
        kept = kept_names(catalogue, self._store.floor(store))
        return [one for one in gone if one.name in kept]

    def _member(self, damage: Damage) -> bool:
        """Catch-up brings the file back here."""
        group = self._replication.group(damage.store.group)
        return group is not None and group.member(self._replication.me.worker_id) is not None

    # ------------------------------------------------------------ memory

    def _save_sometimes(self) -> None:
        if time.monotonic() - self._saved_at >= SAVE_S:
            self._save()

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        try:
            self._store.put_memo(MEMO, self._round.to_json())
        except RhinoError as error:  # a restart repeats a part
            log.warning("position of the scrub not kept", extra={"error": str(error)})


def _piece(pieces: Iterator[bytes], crc: int) -> tuple[int, int]:
    """Length of the next piece, and the checksum with it."""
    data = next(pieces, b"")
    return len(data), crc32c(data, crc)
