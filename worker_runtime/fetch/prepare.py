"""Prepare: makes versions loadable here, by finding their files on this disk or on other workers.

With a replica, all files are already here, and Prepare costs some `stat` calls however large the state is. This is the
point of Rhino 4.2.1: no state is copied at the moment of a handover. Otherwise Prepare fetches the missing files from
any holder.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from rhino_core.descriptors import LogLimit
from rhino_core.errors import IntegrityError, RhinoError
from rhino_core.ids import FileEntry, StoreId, StoreVersion, Worker
from worker_runtime.fetch.peers import Peers, Reached
from worker_runtime.manager_link.client import ManagerClient
from worker_runtime.protocol.copies.preparing import Attempt, Known, PrepareState, Survey, Verdict
from worker_runtime.protocol.copies.pulling import Found
from worker_runtime.replication import Replication
from worker_runtime.statistics import PrepareRecord, Statistics, wall_ms

log = logging.getLogger(__name__)
FETCHES_AT_ONCE = 8
ROUND_PAUSE_S = 0.1  # pause before asking again after a failed fetch


class _Progress:
    """Progress of the files of one call. Repeated bytes are no progress."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._reached: dict[tuple[StoreId, str], int] = {}
        self.wanted: Iterable[FileEntry] = ()

    def reached(self, entry: FileEntry, offset: int) -> None:
        key = entry.store, entry.name
        if offset > self._reached.get(key, 0):
            self._reached[key], self._at = offset, time.monotonic()

    def idle_s(self) -> float:
        return time.monotonic() - self._at

    def __str__(self) -> str:
        wanted = {(entry.store, entry.name): entry.size_bytes for entry in self.wanted}
        left = sum(size - min(self._reached.get(key, 0), size) for key, size in wanted.items())
        return f"{sum(self._reached.values())} bytes have come, {left} are left"


class ArchivePort(Protocol):
    """The archive of state (archiving/loading.py)."""

    async def load(self, versions: Sequence[StoreVersion], verdict: Verdict, reached: Reached) -> Verdict | None:
        """Fetches versions that no worker can serve by this verdict. Returns the final verdict, or None to check again.

        Raises IntegrityError if the archive has them damaged, and they are lost otherwise.
        """
        ...


class Preparer:
    """Executes Prepare calls."""

    def __init__(
        self,
        replication: Replication,
        peers: Peers,
        manager: ManagerClient,
        statistics: Statistics,
        timeout_s: float,
        archive: ArchivePort | None = None,
    ) -> None:
        self._replication = replication
        self._store = replication.store
        self._peers = peers
        self._manager = manager
        self._statistics = statistics
        self._timeout_s = timeout_s
        self._archive = archive
        self._fetches = asyncio.Semaphore(FETCHES_AT_ONCE)
        self._waits = LogLimit(time.monotonic)  # executors ask again all the time

    async def prepare(self, session: str, versions: Sequence[StoreVersion]) -> PrepareRecord:
        """Prepares the versions. READY means: all files are here, checked, visible, and pinned for `session`.

        Raises IntegrityError if a file was damaged here and no other worker has an intact copy, nor the archive.
        """
        started = time.monotonic()
        attempt = Attempt.begun(versions, self._store.catalogue)
        self._store.pins.add(session, versions)
        ready = False
        try:
            state, message = await self._fetch_missing(attempt)
            ready = state is PrepareState.READY
        finally:
            if not ready:
                self._store.pins.release(session, versions)
        if state is PrepareState.LOST and attempt.damaged:
            raise IntegrityError(f"damaged here and held by nobody else: {', '.join(attempt.damaged)}; {message}")
        if state is PrepareState.UNAVAILABLE and (left_out := self._waits.due()) is not None:
            log.warning("a task waits for a version", extra={"why": message, "times_before": left_out})
        record = PrepareRecord(
            versions=attempt.versions,
            state=state,
            source=attempt.source(self._store.catalogue, self._received) if ready else None,
            fetched_bytes=self._fetched_bytes(attempt) if ready else 0,
            duration_ms=(time.monotonic() - started) * 1000,
            finished_ms=wall_ms(),
            held_before=attempt.held_before,
            message=message,
        )
        self._statistics.prepared(record)
        return record

    async def _fetch_missing(self, attempt: Attempt) -> Verdict:
        progress = _Progress()
        while True:
            await self._drop_damaged(attempt)
            missing = attempt.missing(self._store.catalogue)
            if not missing:
                self._show(attempt.versions)
                return PrepareState.READY, ""
            verdict = await self._fetch_round(missing, progress)
            if verdict is not None:
                return verdict
            if progress.idle_s() >= self._timeout_s:
                return PrepareState.UNAVAILABLE, f"nothing has come for {self._timeout_s:g} s; {progress}"

    def _closure(self, version: StoreVersion) -> frozenset[str]:
        return self._store.catalogue.store(version.store).closure(version.version) or frozenset()

    async def _drop_damaged(self, attempt: Attempt) -> None:
        """Compares the files of the closures with the index. Drops differing files: they are fetched again.

        Without a damaged snapshot, the version has another closure. Its files are compared next.
        """
        for version in attempt.versions:
            while damaged := await self._store.damaged(version.store, self._closure(version)):
                attempt.dropped(version.store, damaged)
                await self._replication.drop_damaged(version.store, damaged)

    def _show(self, versions: Iterable[StoreVersion]) -> None:
        """Lists the files: versions in Spark's commit log are committed, even if their Commit call failed."""
        for version in versions:
            for name in self._closure(version):
                self._store.files.set_visible(version.store, name, visible=True)
            self._store.files.set_visible(version.store, f"{version.version}.changelog", visible=True)

    async def _fetch_round(self, missing: list[StoreVersion], progress: _Progress) -> Verdict | None:
        """Asks the live workers and fetches. Returns a final verdict, or None to check again."""
        survey, plans = await self._survey(missing)
        unknown = [version for version, plan in zip(missing, plans, strict=True) if plan is None]
        if unknown:
            verdict = survey.verdict(unknown, await self._known(unknown), self._replication.me)
            return verdict if self._archive is None else await self._archive.load(unknown, verdict, progress.reached)
        finds = {(f.entry.store, f.entry.name): f for plan in plans for f in plan or ()}
        progress.wanted = [found.entry for found in finds.values()]
        with self._peers.turns.prepare():
            results = await asyncio.gather(*(self._pull(found, progress) for found in finds.values()))
        if not all(results):
            await asyncio.sleep(ROUND_PAUSE_S)
        return None

    async def _known(self, versions: Sequence[StoreVersion]) -> Known:
        manager, may_hold = self._manager, await self._may_hold(versions)
        live, absent = tuple(manager.live_workers()), tuple(manager.absent_workers())
        return Known(manager.connected, live, absent, manager.settling, may_hold)

    async def _may_hold(self, versions: Sequence[StoreVersion]) -> frozenset[str] | None:
        """Ids of the workers that may have files of these versions. None: any worker may."""
        groups = sorted({version.store.group for version in versions})
        answers = await asyncio.gather(*(self._manager.may_hold(group) for group in groups))
        named = [answer for answer in answers if answer is not None]
        return frozenset().union(*named) if len(named) == len(answers) else None

    async def _pull(self, found: Found, progress: _Progress) -> bool:
        async with self._fetches:
            try:
                await self._peers.pull(found, progress.reached)
                progress.reached(found.entry, found.entry.size_bytes)
                return True
            except RhinoError as error:
                log.warning("prepare could not fetch a file", extra={"file": found.entry.name, "error": str(error)})
                return False

    async def _survey(self, missing: list[StoreVersion]) -> tuple[Survey, list[list[Found] | None]]:
        """Asks the members, then the other live workers with possible files. Stops once the answers suffice.

        A worker outside the group may claim anything, so it is asked only for files that no member has.
        """
        replication = self._replication
        survey, may_hold = Survey(missing, replication.me, replication.group), await self._may_hold(missing)
        known = (replication.group(group) for group in {version.store.group for version in missing})
        members = {member.worker.worker_id for group in known if group is not None for member in group.members}
        workers = [w for w in self._manager.live_workers() if may_hold is None or w.worker_id in may_hold]
        others = [worker for worker in workers if worker.worker_id != replication.me.worker_id]
        plans = survey.plans(self._store.catalogue)
        for asked in ([w for w in others if w.worker_id in members], [w for w in others if w.worker_id not in members]):
            plans = await self._ask_all(asked, missing, survey)
            if None not in plans:
                break
        return survey, plans

    async def _ask_all(
        self, workers: list[Worker], missing: list[StoreVersion], survey: Survey
    ) -> list[list[Found] | None]:
        """Asks these workers concurrently, until the answers suffice."""
        asks = [asyncio.ensure_future(self._ask(worker, missing, survey)) for worker in workers]
        plans = survey.plans(self._store.catalogue)
        try:
            for answer in asyncio.as_completed(asks):
                await answer
                plans = survey.plans(self._store.catalogue)
                if None not in plans:
                    break
        finally:
            for ask in asks:
                ask.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
        return plans

    async def _ask(self, worker: Worker, missing: list[StoreVersion], survey: Survey) -> None:
        try:
            held = await self._peers.held(worker, missing)
            groups = sorted({version.store.group for version in missing})
            inventories = [await self._peers.inventory(worker, group) for group in groups]
        except RhinoError as error:
            survey.silent[worker.worker_id] = str(error)
            return
        theirs = [version for version, is_held in zip(missing, held, strict=True) if is_held]
        survey.add(worker, theirs, (entry for inventory in inventories for entry in inventory.files))

    def _received(self, store: StoreId, name: str) -> bool:
        record = self._store.files.record(store, name)
        return record is not None and record.received

    def _fetched_bytes(self, attempt: Attempt) -> int:
        records = (self._store.files.record(*key) for key in attempt.fetched(self._store.catalogue))
        return sum(record.entry.size_bytes for record in records if record is not None)
