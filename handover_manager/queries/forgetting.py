"""Forgotten jobs with state still there: no query of theirs starts, and the user may take the forgetting back.

The grace counts only the time measured by a running manager with its monotonic clock. The journal has the remaining
time, at most RECORD_S old. So a change of the wall clock deletes nothing early, and neither does a manager down for
days. A restart lengthens the grace by up to RECORD_S.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from handover_manager.events import DeleteJob, Effect, Persist, QueryStarted, RefuseQuery
from handover_manager.queries.run import Run
from rhino_core.errors import InvalidRequestError, PreconditionError, UnknownError
from rhino_core.records import Record
from rhino_core.text import duration, query_handle

DELETION_PREFIX = "handover_manager/deletion/"
RECORD_S = 300.0  # the time that is left is journalled as often as this


@dataclass(frozen=True, slots=True)
class DeletionRecord(Record):
    """A forgotten job in the journal. `due`: the grace is over, nothing takes it back.

    `by`: the requester; empty: not known.
    """

    job: str
    name: str
    forgotten_ms: int  # wall clock, for people
    left_s: float
    due: bool
    by: str


@dataclass(slots=True)
class Deletion:
    """A forgotten job. Times ending in `_at` are monotonic. Otherwise as in the journal."""

    job: str
    name: str
    forgotten_ms: int
    due_at: float
    recorded_at: float  # time of the newest record
    due: bool = False
    by: str = ""

    def left_s(self, now: float) -> float:
        return max(self.due_at - now, 0.0)

    def __str__(self) -> str:
        return f"job {self.job} ({self.name or 'without a name'})"


def deletion_key(job: str) -> str:
    return f"{DELETION_PREFIX}{job}"


def record_of_deletion(deletion: Deletion) -> DeletionRecord:
    """`left_s` is the remaining grace at `recorded_at`."""
    left_s = 0.0 if deletion.due else deletion.left_s(deletion.recorded_at)
    return DeletionRecord(deletion.job, deletion.name, deletion.forgotten_ms, left_s, due=deletion.due, by=deletion.by)


def deletion_of_record(record: DeletionRecord, now: float) -> Deletion:
    due_at = now + record.left_s
    return Deletion(record.job, record.name, record.forgotten_ms, due_at, now, due=record.due, by=record.by)


class Deletions:
    """The table of forgotten jobs. Methods return effects, to be executed in order."""

    def __init__(self, wall_offset_s: float, restored: Iterable[Deletion] = ()) -> None:
        self._offset_s = wall_offset_s
        self._jobs = {deletion.job: deletion for deletion in restored}

    def get(self, job: str) -> Deletion | None:
        return self._jobs.get(job)

    def all(self) -> list[Deletion]:
        return list(self._jobs.values())

    def find(self, name: str) -> Deletion | None:
        """Finds a forgotten job by its id, name or handle. Raises InvalidRequestError if several have the name."""
        if name in self._jobs:
            return self._jobs[name]
        called = [one for one in self._jobs.values() if one.name]
        named = [one for one in called if name in (one.name, query_handle(one.name, one.job))]
        if len(named) > 1:
            handles = ", ".join(query_handle(deletion.name, deletion.job) for deletion in named)
            raise InvalidRequestError(f"{name!r} is the name of several forgotten jobs: use one of {handles}")
        return named[0] if named else None

    def begin(self, job: str, run: Run, grace_s: float, now: float, by: str = "") -> list[Effect]:
        """Forgets a stopped job. `run`: its newest one. `by`: the requester.

        The grace of a forgotten job does not begin again, but 0 ends it.
        """
        deletion = self._jobs.get(job)
        if deletion is None:
            forgotten_ms = round((now + self._offset_s) * 1000)
            deletion = Deletion(job, run.name, forgotten_ms, now + grace_s, now, by=by)
            self._jobs[job] = deletion
        elif grace_s:
            return []
        return self._record(deletion, now) if grace_s else self._delete(deletion, now)

    def undo(self, name: str) -> list[Effect]:
        """Takes `begin` back. Raises UnknownError, InvalidRequestError, and PreconditionError when due."""
        deletion = self.find(name)
        if deletion is None:
            raise UnknownError(f"job {name!r} is not forgotten: `rhino status` shows forgotten queries")
        if deletion.due:
            raise PreconditionError(f"{deletion}: the time to take it back is over, and its state is being deleted")
        return self.end(deletion.job)

    def refuse(self, event: QueryStarted, now: float) -> list[Effect]:
        """Refuses the run if its job is forgotten."""
        deletion = self._jobs.get(event.job)
        if deletion is None:
            return []
        since = datetime.fromtimestamp(deletion.forgotten_ms / 1000, UTC).isoformat(" ", "seconds")
        since += f" by {deletion.by}" if deletion.by else ""
        reason = f"{deletion} was forgotten at {since}, and its state will be deleted in "
        reason += f"{duration(deletion.left_s(now))}. To go on with its state, take that back with `rhino forget --job "
        reason += f"{deletion.job} --undo`, and start the query again. Otherwise start it from a new checkpoint"
        if deletion.due:
            reason = f"{deletion} was forgotten at {since}, and its state is being deleted: start the query from a new "
            reason += "checkpoint"
        return [RefuseQuery(event.session, event.job, event.run_id, reason)]

    def observe(self, moved: Collection[str], now: float) -> list[Effect]:
        """Deletes the due jobs, except jobs in a handover. Journals the remaining time."""
        effects: list[Effect] = []
        for deletion in self.all():
            if deletion.due or now >= deletion.due_at:
                effects += self._delete(deletion, now) if deletion.job not in moved else []
            elif now >= deletion.recorded_at + RECORD_S:
                effects += self._record(deletion, now)
        return effects

    def end(self, job: str) -> list[Effect]:
        """The state of the job is deleted, or stays."""
        return [Persist(deletion_key(job), None)] if self._jobs.pop(job, None) else []

    def deadlines(self) -> list[float]:
        waiting = [deletion for deletion in self._jobs.values() if not deletion.due]
        return [min(deletion.due_at, deletion.recorded_at + RECORD_S) for deletion in waiting]

    def _record(self, deletion: Deletion, now: float) -> list[Effect]:
        deletion.recorded_at = now
        return [Persist(deletion_key(deletion.job), record_of_deletion(deletion))]

    def _delete(self, deletion: Deletion, now: float) -> list[Effect]:
        """Journals that the deletion has begun, so a crash between the two managers' records ends it later."""
        if deletion.due:
            return [DeleteJob(deletion.job)]
        deletion.due = True
        return [*self._record(deletion, now), DeleteJob(deletion.job)]
