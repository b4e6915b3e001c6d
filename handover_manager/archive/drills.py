"""Restore drills: which group of which archived batch is restored, when, and by which worker. A part of the machine."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from handover_manager.archive.events import Drill, DrillEnded, DrillFailed, Outcome
from handover_manager.view import ClusterView
from rhino_core.ids import GroupId, StoreVersion, Worker

RETRY_S = 2.0  # pause after a drill that could not run; it doubles, up to the usual one


@dataclass(frozen=True, slots=True)
class ArchivedBatch:
    """The newest archived batch of a query. `manifest`: name of the object."""

    batch_id: int
    manifest: str
    versions: tuple[StoreVersion, ...]


class Drills:
    """One drill at a time, every `every_s` seconds; 0: none. Queries take turns. `batches`: by query.

    `counts`: of ended drills. `failures`: of groups, until a later drill of the group passes. `passed_at`: time of the
    last passed drill, or of the first archived batch. `why`: the newest drill could not run.
    """

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.counts = Counter[Outcome]()
        self.failures: dict[GroupId, str] = {}
        self.passed_at: float | None = None
        self.why = ""
        self._due_at: float | None = None
        self._number = 0
        self._running: Drill | None = None
        self._newest: dict[str, int] = {}  # number of the newest drill, by query
        self._not_run = 0  # in a row

    def next_deadline(self) -> float | None:
        """Once this time has come, `begin` has something to do, if a batch is archived."""
        return self._due_at if self._running is None else None

    def waits(self, now: float) -> bool:
        """Whether `begin` has nothing to do."""
        return not self.every_s or self._running is not None or (self._due_at is not None and now < self._due_at)

    def begin(self, batches: Mapping[str, ArchivedBatch], view: ClusterView, now: float) -> list[Drill]:
        if self.waits(now) or not batches:
            self._due_at = self._due_at if batches else None
            return []
        if self._due_at is None:
            self._due_at = now + self.every_s
            self.passed_at = now if self.passed_at is None else self.passed_at
            return []
        self._number += 1
        job = min(batches, key=lambda one: (self._newest.get(one, 0), one))
        self._newest[job] = self._number
        batch = batches[job]
        group = self._chosen({version.store.group for version in batch.versions})
        worker = holder(view, group, self._number)
        if worker is None:
            self._again(f"no reachable worker holds a whole copy of {group}", now)
            return []
        versions = tuple(version for version in batch.versions if version.store.group == group)
        self._running = Drill(self._number, job, batch.batch_id, batch.manifest, group, versions, worker)
        return [self._running]

    def _chosen(self, groups: set[GroupId]) -> GroupId:
        """As by chance. Half of the drills try a group again that has failed."""
        failed = groups & self.failures.keys()
        again = failed and weight(self._number)[0] % 2
        return min(failed if again else groups, key=lambda group: weight(self._number, group))

    def ended(self, event: DrillEnded, batches: Mapping[str, ArchivedBatch], now: float) -> list[DrillFailed]:
        drill = self._running
        if drill is None or drill.number != event.number:
            return []
        self._running = None
        outcome, newest = event.outcome, batches.get(drill.job)
        if outcome is Outcome.MISSING and newest is not None and newest.manifest == drill.manifest:
            outcome = Outcome.FAILED  # only older manifests are deleted
        if newest is None or outcome in (Outcome.MISSING, Outcome.NOT_RUN):
            self._again(event.why, now)
            return []
        self.counts[outcome] += 1
        self.why, self._not_run, self._due_at = "", 0, now + self.every_s
        if outcome is Outcome.FAILED:
            error = f"batch {drill.batch_id}, {', '.join(map(str, drill.versions))}, {drill.manifest}: {event.why}"
            self.failures[drill.group] = error
            return [DrillFailed(drill.job, error)]
        self.failures.pop(drill.group, None)
        if outcome is Outcome.PASSED:
            self.passed_at = now
        return []

    def _again(self, why: str, now: float) -> None:
        """The next one has the newest batch of then."""
        self.counts[Outcome.NOT_RUN] += 1
        self.why = why
        self._due_at = now + min(RETRY_S * 2 ** min(self._not_run, 16), self.every_s)
        self._not_run += 1

    def forget(self, job: str) -> None:
        self._newest.pop(job, None)
        self.failures = {group: error for group, error in self.failures.items() if group.job != job}


def holder(view: ClusterView, group: GroupId, *draw: int, but: Collection[str] = ()) -> Worker | None:
    """A reachable whole member by rendezvous hashing, the owner last: its tasks need its disk and processor."""
    seen = view.groups.get(group)
    if seen is None:
        return None
    whole = (member.worker for member in seen.group.members if member.whole)
    found = [w for w in whole if view.reachable(w.worker_id) and w.worker_id not in but]
    return min(found, key=lambda w: (w.worker_id == seen.owner, weight(*draw, group, w.worker_id)), default=None)


def weight(*parts: object) -> bytes:
    """The same for the same parts, and else as by chance."""
    return hashlib.blake2b(" ".join(map(str, parts)).encode(), digest_size=8).digest()
