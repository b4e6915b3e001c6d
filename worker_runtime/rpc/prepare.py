"""Prepare: makes versions loadable here, by finding their files on this disk or on another worker's.

With a replica everything is here and Prepare costs some `stat` calls, however large the state is: the point of Rhino
4.2.1 (no state is copied at the moment of a handover). Otherwise it fetches what is missing from any holder.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rhino.errors import IntegrityError, RhinoError
from rhino.ids import FileEntry, Source, StoreId, StoreVersion, Worker
from worker_runtime.core.closure import StoreCatalogue
from worker_runtime.figures import Figures, PrepareRecord, PrepareState, wall_ms
from worker_runtime.replication import Replication
from worker_runtime.rpc.manager import ManagerClient
from worker_runtime.rpc.peers import Found, Peers

log = logging.getLogger(__name__)
FETCHES_AT_ONCE = 8
ROUND_PAUSE_S = 0.1  # before asking again after a fetch has failed
SOURCES = tuple(Source)  # from best to worst


@dataclass(slots=True)
class Attempt:
    """What one Prepare has done so far."""

    versions: tuple[StoreVersion, ...]
    here_before: dict[StoreId, set[str]]  # names that were here, and undamaged, when the call came
    held_before: bool
    damaged: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Survey:
    """What the other workers have said. `held`: versions that somebody claims to hold."""

    files: dict[StoreId, dict[str, tuple[FileEntry, list[Worker]]]] = field(default_factory=dict)
    held: set[StoreVersion] = field(default_factory=set)
    silent: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def add(self, worker: Worker, files: Iterable[FileEntry]) -> None:
        for entry in files:
            known = self.files.setdefault(entry.store, {}).setdefault(entry.name, (entry, []))
            if known[0].crc32c == entry.crc32c and known[0].size_bytes == entry.size_bytes:
                known[1].append(worker)

    def plan(self, local: StoreCatalogue, version: StoreVersion) -> list[Found] | None:
        """The files to fetch for the cheapest closure of local and remote files together; None: there is none."""
        theirs = self.files.get(version.store, {})
        remote = [entry for name, (entry, _) in theirs.items() if name not in local]
        names = StoreCatalogue([*local.entries(), *remote]).cheapest_closure(version.version, local)
        if names is None:
            return None
        return [Found(theirs[name][0], tuple(theirs[name][1])) for name in sorted(names) if name not in local]


class Preparer:
    """Carries out Prepare calls."""

    def __init__(
        self, replication: Replication, peers: Peers, manager: ManagerClient, figures: Figures, timeout_s: float
    ) -> None:
        self._replication = replication
        self._store = replication.store
        self._peers = peers
        self._manager = manager
        self._figures = figures
        self._timeout_s = timeout_s
        self._fetches = asyncio.Semaphore(FETCHES_AT_ONCE)

    async def prepare(self, session: str, versions: Sequence[StoreVersion]) -> PrepareRecord:
        """READY: everything is here, checked, visible, and pinned for `session`.

        Raises IntegrityError when a file was damaged here and nobody has a good one.
        """
        started = time.monotonic()
        attempt = self._attempt(versions)
        self._store.pins.add(session, versions)
        ready = False
        try:
            state, message = await self._bring_here(attempt)
            ready = state is PrepareState.READY
        finally:
            if not ready:
                self._store.pins.release(session, versions)
        if state is PrepareState.LOST and attempt.damaged:
            raise IntegrityError(f"damaged here and held by nobody else: {', '.join(attempt.damaged)}; {message}")
        record = PrepareRecord(
            versions=attempt.versions,
            state=state,
            source=self._source(attempt) if ready else None,
            fetched_bytes=self._fetched_bytes(attempt) if ready else 0,
            duration_ms=(time.monotonic() - started) * 1000,
            finished_ms=wall_ms(),
            held_before=attempt.held_before,
            message=message,
        )
        self._figures.prepared(record)
        return record

    def _attempt(self, versions: Sequence[StoreVersion]) -> Attempt:
        stores = {version.store: self._store.catalogue.store(version.store) for version in versions}
        here = {store: {entry.name for entry in catalogue.entries()} for store, catalogue in stores.items()}
        return Attempt(tuple(versions), here, all(self._holds(version) for version in versions))

    async def _bring_here(self, attempt: Attempt) -> tuple[PrepareState, str]:
        deadline = time.monotonic() + self._timeout_s
        while True:
            await self._drop_damaged(attempt)
            missing = [version for version in attempt.versions if not self._holds(version)]
            if not missing:
                self._show(attempt.versions)
                return PrepareState.READY, ""
            verdict = await self._fetch_round(attempt, missing)
            if verdict is not None:
                return verdict
            if time.monotonic() >= deadline:
                return PrepareState.UNAVAILABLE, f"not fetched within {self._timeout_s} s"

    def _holds(self, version: StoreVersion) -> bool:
        return self._store.catalogue.store(version.store).holds(version.version)

    def _closure(self, version: StoreVersion) -> frozenset[str]:
        return self._store.catalogue.store(version.store).closure(version.version) or frozenset()

    async def _drop_damaged(self, attempt: Attempt) -> None:
        """Compares what is here of the closures with the index; what differs is dropped, to be fetched again."""
        for version in attempt.versions:
            damaged = await self._store.damaged(version.store, self._closure(version))
            if damaged:
                attempt.damaged += [f"{version.store}/{name}" for name in damaged]
                attempt.here_before[version.store].difference_update(damaged)
                attempt.held_before = False
                await self._replication.drop_damaged(version.store, damaged)

    def _show(self, versions: Iterable[StoreVersion]) -> None:
        """What Spark's commit log names is committed, whatever became of the call that wrote it."""
        for version in versions:
            for name in self._closure(version):
                self._store.make_visible(version.store, name)
            self._store.make_visible(version.store, f"{version.version}.changelog")

    async def _fetch_round(self, attempt: Attempt, missing: list[StoreVersion]) -> tuple[PrepareState, str] | None:
        """Asks the live workers and fetches; a final verdict, or None to look again."""
        survey, plans = await self._survey(missing)
        unknown = [version for version, plan in zip(missing, plans, strict=True) if plan is None]
        if unknown:
            return self._verdict(unknown, survey)
        finds = {(f.entry.store, f.entry.name): f for plan in plans for f in plan or ()}
        with self._peers.turns.prepare():
            results = await asyncio.gather(*(self._pull(found) for found in finds.values()))
        if not all(results):
            await asyncio.sleep(ROUND_PAUSE_S)
        return None

    async def _pull(self, found: Found) -> bool:
        async with self._fetches:
            try:
                await self._peers.pull(found)
                return True
            except RhinoError as error:
                log.warning("prepare could not fetch a file", extra={"file": found.entry.name, "error": str(error)})
                return False

    async def _survey(self, missing: list[StoreVersion]) -> tuple[Survey, list[list[Found] | None]]:
        """Asks all live workers at once; done as soon as the answers suffice."""
        survey = Survey()
        workers = [w for w in self._manager.live_workers() if w.worker_id != self._replication.me.worker_id]
        asks = [asyncio.ensure_future(self._ask(worker, missing, survey)) for worker in workers]
        plans = self._plans(survey, missing)
        try:
            for answer in asyncio.as_completed(asks):
                await answer
                plans = self._plans(survey, missing)
                if all(plan is not None for plan in plans):
                    break
        finally:
            for ask in asks:
                ask.cancel()
            await asyncio.gather(*asks, return_exceptions=True)
        return survey, plans

    def _plans(self, survey: Survey, missing: list[StoreVersion]) -> list[list[Found] | None]:
        return [survey.plan(self._store.catalogue.store(version.store), version) for version in missing]

    async def _ask(self, worker: Worker, missing: list[StoreVersion], survey: Survey) -> None:
        try:
            held = await self._peers.held(worker, missing)
            groups = sorted({version.store.group for version in missing})
            inventories = [await self._peers.inventory(worker, group) for group in groups]
        except RhinoError as error:
            survey.silent.append(f"{worker.worker_id} ({error})")
            return
        survey.asked.append(worker.worker_id)
        survey.held.update(version for version, is_held in zip(missing, held, strict=True) if is_held)
        for inventory in inventories:
            survey.add(worker, inventory.files)

    def _verdict(self, unknown: list[StoreVersion], survey: Survey) -> tuple[PrepareState, str]:
        """LOST only when every worker that may hold a version has answered that it does not."""
        names = ", ".join(str(version) for version in unknown)
        asked = f"asked: {', '.join(sorted(survey.asked)) or 'nobody'}"
        if not self._manager.connected:
            return PrepareState.UNAVAILABLE, f"{names}: not here, and the manager cannot be asked who is alive; {asked}"
        absent = sorted(worker.worker_id for worker in self._manager.absent_workers())
        unasked = [*survey.silent, *absent]
        if unasked:
            return PrepareState.UNAVAILABLE, f"{names}: not found; {asked}; cannot be asked: {', '.join(unasked)}"
        if self._manager.settling:
            return PrepareState.UNAVAILABLE, (
                f"{names}: not found; {asked}; the manager has begun with an empty journal just now, and other workers "
                "may not have registered with it yet"
            )
        if survey.held.intersection(unknown):
            return PrepareState.UNAVAILABLE, f"{names}: held elsewhere, but below the floor; {asked}"
        return PrepareState.LOST, f"{names}: no worker holds it; {asked}"

    def _fetched_bytes(self, attempt: Attempt) -> int:
        """Bytes of the closures that came from other workers during the call, whoever asked for them."""
        came = {
            (version.store, name)
            for version in attempt.versions
            for name in self._used(attempt, version) - attempt.here_before[version.store]
        }
        return sum(record.entry.size_bytes for key in came if (record := self._store.record(*key)) is not None)

    def _used(self, attempt: Attempt, version: StoreVersion) -> frozenset[str]:
        """The closure that makes it loadable: one that was here before, if any. A newer snapshot may have been pushed
        here during the call, which fetched nothing of it."""
        closures = list(self._store.catalogue.store(version.store).closures(version.version))
        here_before = attempt.here_before[version.store]
        return next((names for names in closures if names <= here_before), next(iter(closures), frozenset()))

    def _source(self, attempt: Attempt) -> Source:
        """The worst source of any version's files."""
        worst = Source.EMPTY
        for version in attempt.versions:
            names = self._used(attempt, version)
            if names - attempt.here_before[version.store]:
                return Source.REMOTE
            if names:
                records = [self._store.record(version.store, name) for name in names]
                received = any(record is not None and record.received for record in records)
                worst = max(worst, Source.REPLICA if received else Source.LOCAL, key=SOURCES.index)
        return worst
