"""Decides which logged batch goes to the archive, and which worker uploads what. Nothing here waits or reads a clock.

A round archives one batch of one query: each group gets a part from one worker, and then the manifest is written. The
machine may forget everything at any time: the archive knows its newest batch, and a repeated upload costs bytes only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from handover_manager.archive.drills import ArchivedBatch, Drills, holder
from handover_manager.archive.events import (
    ArchiveWanted,
    BatchKnown,
    CheckpointRead,
    DrillEnded,
    Due,
    Effect,
    Event,
    FindNewest,
    JobGone,
    ManifestWritten,
    NewestFound,
    PartUploaded,
    ReadCheckpoint,
    StepFailed,
    StopUploads,
    Upload,
    UploadFailed,
    ViewSeen,
    WriteManifest,
)
from handover_manager.view import ClusterView
from rhino_archive.manifest import CheckpointFile, Manifest, Part, digest_of
from rhino_core.ids import GroupId, StoreVersion, Worker

# Packs are deleted a day after the last manifest that names them. A manifest of an older round could name such packs.
ROUND_S_MAX = 12 * 3600.0
# A manifest that was there so long ago may be gone by now, but its packs are there until the end of a round.
NEWEST_S_MAX = 6 * 3600.0
CHECKPOINT_S_MAX = 30.0  # for a driver's answer. Without it the batch has state only
OWN_REQUESTS = 2  # of a manager, for a round: it reads the claim, and writes the manifest
DAY_S = 24 * 3600.0
RETRY_S, RETRY_S_MAX = 2.0, 60.0  # pause after a failed round; it doubles


@dataclass(slots=True)
class Round:
    """`left`: groups without a part or an uploader. `asked`: groups by the worker that uploads them now.

    `tried`: for each group the workers that have failed. `requests`: to the store. `checkpoint`: the driver's files;
    None: it has not answered.
    """

    number: int
    batch: BatchKnown
    basis: tuple[Part, ...]
    began_at: float
    versions: dict[GroupId, list[StoreVersion]]
    left: set[GroupId]
    parts: list[Part] = field(default_factory=list)
    tried: dict[GroupId, set[str]] = field(default_factory=dict)
    asked: dict[str, frozenset[GroupId]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    requests: int = OWN_REQUESTS
    checkpoint: tuple[CheckpointFile, ...] | None = None
    writing: bool = False


@dataclass(slots=True)
class ArchivedQuery:
    """`newest`: the newest manifest; None: none, or not known while `known` is false. `error`: of the last attempt.

    `every_s`: seconds between the begins of two rounds. `why`: what makes them more than the setting; empty: nothing.

    `archived`: the same batch, if its versions are known. `newest_at`: when it was in the archive.
    """

    known: bool = False
    asking: bool = False
    asked_at: float = 0.0
    newest: Manifest | None = None
    newest_at: float = 0.0
    archived: ArchivedBatch | None = None
    logged: BatchKnown | None = None
    behind_since: float | None = None  # when the oldest batch was logged that is later than the archived one
    round: Round | None = None
    checkpoint: CheckpointRead | None = None  # that of the newest logged batch, if the driver has sent it
    due_at: float = 0.0
    every_s: float = 0.0
    why: str = ""
    failures: int = 0
    error: str = ""
    stranger: bool = False  # another cluster writes the archive of this query

    @property
    def behind(self) -> bool:
        """Whether the newest logged batch is not in the archive."""
        if self.logged is None or self.newest is None:
            return self.logged is not None
        same = self.newest.batch_id == self.logged.batch_id
        return not same or self.newest.digest != digest_of(self.logged.versions)


class ArchiveMachine:
    """`every_s`: seconds between the begins of two rounds of a query, at least. `cluster`: id of this cluster.

    `drill_every_s`: seconds between two restore drills; 0: none. `requests_a_day`: of all rounds, at most, once the
    queries have had one; 0: no limit.
    """

    def __init__(self, every_s: float, cluster: str, drill_every_s: float = 0.0, requests_a_day: int = 0) -> None:
        self._every_s = every_s
        self._requests_a_day = requests_a_day
        self._cluster = cluster
        self._numbers = itertools.count(1)
        self.queries: dict[str, ArchivedQuery] = {}
        self.drills = Drills(drill_every_s)
        self._view = ClusterView()

    def next_deadline(self) -> float | None:
        waiting = (query.due_at for query in self.queries.values() if self._waits(query))
        rounds = [query.round for query in self.queries.values() if query.round is not None]
        ends = (around.began_at + ROUND_S_MAX for around in rounds)
        drivers = (around.began_at + CHECKPOINT_S_MAX for around in rounds if around.checkpoint is None)
        drill = self.drills.next_deadline()
        return min(itertools.chain(waiting, ends, drivers, () if drill is None else (drill,)), default=None)

    def _waits(self, query: ArchivedQuery) -> bool:
        """Whether it has something to do once its time has come."""
        return query.round is None and not query.asking and (query.behind or not query.known)

    def handle(self, event: Event, *, now: float) -> Sequence[Effect]:
        # Deadlines first: after a pause of this process, answers to rounds that are over may come before its timers.
        effects = [*self._ended(now), *self._handled(event, now), *self._begun(now)]
        return effects if self.drills.waits(now) else [*effects, *self.drills.begin(self._batches(), self._view, now)]

    def _handled(self, event: Event, now: float) -> Iterable[Effect]:
        query: ArchivedQuery | None
        match event:
            case ViewSeen(view):
                self._view = view
            case BatchKnown(job):
                return self._logged(self.queries.setdefault(job, ArchivedQuery(every_s=self._every_s)), event, now)
            case NewestFound(job, newest):
                if (query := self.queries.get(job)) is not None:
                    query.known, query.asking, query.newest_at = True, False, query.asked_at
                    versions = () if query.logged is None else query.logged.versions
                    self._archived(query, newest, versions, now)
            case PartUploaded() | UploadFailed():
                return self._answered(event, now)
            case CheckpointRead(job, batch_id, files):
                query = self.queries.get(job)
                if query is not None and files:
                    query.checkpoint = event
                if query is not None and query.round is not None and query.round.batch.batch_id == batch_id:
                    query.round.checkpoint = files
                    return self._completed(query.round)
            case ManifestWritten(number, manifest):
                if (query := self._in_round(manifest.job, number)) is not None:
                    assert query.round is not None
                    former, query.round = query.round, None
                    query.newest_at = former.began_at
                    self._pace(query, former, now)
                    self._archived(query, manifest, former.batch.versions, former.began_at)
            case StepFailed():
                self._step_failed(event, now)
            case DrillEnded():
                return self.drills.ended(event, self._batches(), now)
            case ArchiveWanted(job):
                if (query := self.queries.get(job)) is not None:
                    query.due_at = now
                    query.stranger = query.known = False  # somebody may have changed the archive
            case JobGone(job):
                self.drills.forget(job)
                gone = self.queries.pop(job, None)
                return [StopUploads(job, gone.round.number)] if gone is not None and gone.round is not None else []
            case Due():
                pass
        return []

    def _batches(self) -> dict[str, ArchivedBatch]:
        found = ((job, query.archived) for job, query in self.queries.items() if not query.stranger)
        return {job: archived for job, archived in found if archived is not None}

    def _logged(self, query: ArchivedQuery, event: BatchKnown, now: float) -> list[Effect]:
        former, query.logged = query.logged, event
        rewound = former is not None and former.versions != event.versions
        if rewound and query.checkpoint is not None and query.checkpoint.batch_id >= event.batch_id:
            query.checkpoint = None
        if query.behind and query.behind_since is None:
            query.behind_since = now
        around = query.round
        if not rewound or around is None or around.batch.batch_id < event.batch_id:
            return []
        query.round = None  # of a former history; and the driver's files of this batch are no more those of its state
        return [StopUploads(event.job, around.number)]

    def _archived(
        self, query: ArchivedQuery, newest: Manifest | None, versions: tuple[StoreVersion, ...], since: float
    ) -> None:
        """The archive has this batch, perhaps with these versions. Later ones were logged after `since`."""
        query.newest, query.archived = newest, None
        if newest is not None and newest.digest == digest_of(versions):
            query.archived = ArchivedBatch(newest.batch_id, newest.name, versions)
        query.behind_since = since if query.behind else None
        query.failures, query.error, query.stranger = 0, "", False

    def _pace(self, query: ArchivedQuery, former: Round, now: float) -> None:
        """The next rounds probably need as many requests, and as much time. Batches between two rounds are left out."""
        limited_s = 0.0
        if self._requests_a_day:
            limited_s = DAY_S * former.requests * len(self.queries) / self._requests_a_day
        paces = (self._every_s, ""), (limited_s, "the limit of requests"), (now - former.began_at, "the uploads")
        query.every_s, query.why = max(paces, key=lambda pace: pace[0])
        query.due_at = former.began_at + query.every_s

    def _step_failed(self, event: StepFailed, now: float) -> None:
        query = self.queries.get(event.job)
        if query is None or (event.round and self._in_round(event.job, event.round) is None):
            return
        query.asking, query.round = False, None
        query.known = False  # somebody else may have written meanwhile
        query.stranger = event.stranger
        self._failed(query, event.error, now)

    def _failed(self, query: ArchivedQuery, error: str, now: float) -> None:
        query.error = error
        query.due_at = now + min(RETRY_S * 2**query.failures, RETRY_S_MAX)
        query.failures = min(query.failures + 1, 10)

    def _in_round(self, job: str, number: int) -> ArchivedQuery | None:
        query = self.queries.get(job)
        return query if query is not None and query.round is not None and query.round.number == number else None

    def _begun(self, now: float) -> Iterable[Effect]:
        for job, query in self.queries.items():
            if not self._waits(query) or now < query.due_at:
                continue
            if not query.known or (query.newest is not None and now > query.newest_at + NEWEST_S_MAX):
                query.known, query.asking, query.asked_at = False, True, now
                yield FindNewest(job)
                continue
            yield from self._begin(query, now)

    def _begin(self, query: ArchivedQuery, now: float) -> list[Effect]:
        batch = query.logged
        assert batch is not None
        versions: dict[GroupId, list[StoreVersion]] = {}
        for version in batch.versions:
            versions.setdefault(version.store.group, []).append(version)
        basis = () if query.newest is None else query.newest.parts
        query.round = Round(next(self._numbers), batch, basis, now, versions, set(versions))
        query.due_at = now + query.every_s
        asked = self._ask(query, now)
        if query.round is None:
            return asked
        if query.checkpoint is not None and query.checkpoint.batch_id == batch.batch_id:
            query.round.checkpoint = query.checkpoint.files
            return asked
        return [ReadCheckpoint(batch.job, batch.batch_id), *asked]

    def _ask(self, query: ArchivedQuery, now: float) -> list[Effect]:
        """Gives the groups without an uploader to their next candidates. Ends the round if one has none."""
        around = query.round
        assert around is not None
        chosen: dict[str, tuple[Worker, list[GroupId]]] = {}
        for group in sorted(around.left):
            worker = holder(self._view, group, but=around.tried.get(group, ()))
            if worker is None:
                error = around.errors[-1] if around.errors else f"no reachable worker holds a whole copy of {group}"
                query.round = None
                self._failed(query, error, now)
                return [StopUploads(around.batch.job, around.number)]
            chosen.setdefault(worker.worker_id, (worker, []))[1].append(group)
        effects: list[Effect] = []
        for worker_id, (worker, groups) in chosen.items():
            if worker_id in around.asked:
                continue  # it gets these groups once it has done the others
            around.asked[worker_id] = frozenset(groups)
            around.left.difference_update(groups)
            versions = tuple(version for group in groups for version in around.versions[group])
            basis = tuple(replace(part, packs=()) for part in around.basis if not {*groups}.isdisjoint(part.groups))
            effects.append(Upload(around.batch.job, around.number, worker, versions, basis))
        return effects

    def _answered(self, event: PartUploaded | UploadFailed, now: float) -> list[Effect]:
        query = self._in_round(event.job, event.round)
        if query is None or query.round is None or event.worker_id not in query.round.asked:
            return []
        around = query.round
        groups = around.asked.pop(event.worker_id)
        if isinstance(event, UploadFailed):
            around.errors.append(event.error)
            if event.archive:
                query.round = None
                self._failed(query, event.error, now)
                return [StopUploads(event.job, event.round)]
            lacking = groups
        else:
            around.requests += event.requests
            if event.part is not None:
                around.parts.append(event.part)
            done = frozenset(event.part.groups) if event.part is not None else frozenset()
            lacking = groups - done
            if lacking:
                around.errors.append(f"worker {event.worker_id} does not hold a version of {min(lacking)}")
        around.left |= lacking
        for group in lacking:
            around.tried.setdefault(group, set()).add(event.worker_id)
        return [*self._ask(query, now), *(self._completed(around) if query.round is around else ())]

    def _completed(self, around: Round) -> list[Effect]:
        """Writes the manifest once everything is there."""
        if around.asked or around.checkpoint is None or around.writing:
            return []
        around.writing = True
        return [WriteManifest(around.number, self._manifest(around))]

    def _manifest(self, around: Round) -> Manifest:
        """Without the time at which it is written."""
        batch = around.batch
        return Manifest(
            batch.job,
            batch.batch_id,
            batch.logged_ms,
            0,
            self._cluster,
            batch.query,
            batch.location,
            digest_of(batch.versions),
            tuple(around.parts),
            around.checkpoint or (),
        )

    def _ended(self, now: float) -> Iterable[Effect]:
        """Rounds that last too long: their packs may be deleted already. And drivers that do not answer."""
        for job, query in self.queries.items():
            if query.round is None:
                continue
            if query.round.checkpoint is None and now >= query.round.began_at + CHECKPOINT_S_MAX:
                query.round.checkpoint = ()
                yield from self._completed(query.round)
            if now >= query.round.began_at + ROUND_S_MAX:
                number, query.round = query.round.number, None
                self._failed(query, f"the round of {ROUND_S_MAX / 3600:.0f} hours was too long", now)
                yield StopUploads(job, number)

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        for query in self.queries.values():
            if (around := query.round) is None:
                continue
            places = [g for groups in around.asked.values() for g in groups]
            places += [g for part in around.parts for g in part.groups]
            places += around.left
            assert sorted(places) == sorted(around.versions), "a group is lost, or has two uploaders"
            waits = bool(around.asked) or around.checkpoint is None
            assert waits != around.writing, "a round waits for nothing, or for too much"
