"""A witness: stores the journal of the managers. It only answers: no timers, no votes among witnesses.

The rules are those of a follower in Raft (section 5.3), and of an acceptor in Paxos for promises. The generation, by
which sidecars refuse the groups of a former manager, is the ballot: a witness refuses all requests below its promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rhino_core.errors import PreconditionError
from rhino_core.witnesses.log import KEPT, Log
from rhino_core.witnesses.messages import (
    Answer,
    Append,
    Appended,
    Fetch,
    Fetched,
    Position,
    Promise,
    Promised,
    Record,
    Request,
    Snapshot,
)


@dataclass(frozen=True, slots=True)
class SavePromise:
    cluster: str
    generation: int
    candidate: str


@dataclass(frozen=True, slots=True)
class SaveRecords:
    """The log on disk goes on with `records` behind index `after`. Records there go."""

    after: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class SaveFolded:
    """The first records, up to `base`, become part of the snapshot. `witnesses`: the set in force at `base`."""

    base: Position
    witnesses: tuple[str, ...]
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Replaces the snapshot and all records."""

    snapshot: Snapshot


Save: TypeAlias = SavePromise | SaveRecords | SaveFolded | SaveSnapshot


@dataclass(frozen=True, slots=True)
class Reply:
    """Send it once all former Saves are on disk, synced."""

    answer: Answer


Effect: TypeAlias = Save | Reply


@dataclass(frozen=True, slots=True)
class Stored:
    """The disk of a witness. `promised`, `candidate`: of the newest promise. `cluster`: empty for a new disk."""

    cluster: str = ""
    promised: int = 0
    candidate: str = ""
    snapshot: Snapshot = field(default_factory=Snapshot)
    records: tuple[Record, ...] = ()


class Acceptor:
    """The core of a witness.

    `witness`: the name of this disk. A witness with an empty disk must have another name, because it has forgotten its
    promises. `cluster`: empty until the first promise.
    """

    def __init__(self, witness: str, stored: Stored, *, kept: int = KEPT) -> None:
        self._witness = witness
        self.cluster = stored.cluster
        self._promised = stored.promised
        self._candidate = stored.candidate
        self._log = Log(stored.snapshot, stored.records, kept=kept)
        self._activity = 0

    def next_deadline(self) -> float | None:
        return None

    def handle(self, event: Request, *, now: float) -> Sequence[Effect]:
        """Raises PreconditionError for the journal of another cluster."""
        if event.cluster != self.cluster and self.cluster:
            raise PreconditionError(
                f"witness {self._witness} keeps the journal of cluster {self.cluster}, and not of {event.cluster}: "
                "name another sidecar, or give this one an empty data folder"
            )
        match event:
            case Promise():
                return self._promise(event)
            case Append():
                return self._append(event)
            case Fetch():
                return [Reply(self._fetched(event))]

    def _promise(self, request: Promise) -> Sequence[Effect]:
        saves = self._raised(request) if request.generation > self._promised else []
        granted = (request.generation, request.candidate) == (self._promised, self._candidate)
        answer = Promised(self._witness, request.generation, granted, self._promised, self._log.last)
        return [*saves, Reply(answer)]

    def _raised(self, request: Promise | Append) -> list[Effect]:
        if (request.generation, request.candidate) == (self._promised, self._candidate):
            return []
        self.cluster, self._promised, self._candidate = request.cluster, request.generation, request.candidate
        self._activity += 1
        return [SavePromise(request.cluster, request.generation, request.candidate)]

    def _append(self, request: Append) -> Sequence[Effect]:
        if request.generation < self._promised:
            return [self._appended(request, 0)]
        effects = self._raised(request)
        self._activity += 1
        if request.snapshot is not None and not self._log.covers(request.snapshot.last):
            self._log.install(request.snapshot)
            effects.append(SaveSnapshot(request.snapshot))
        if not self._log.covers(request.prev):
            return [*effects, self._appended(request, self._log.committed)]
        effects += self._stored(request)
        matched = request.prev.index + len(request.records)
        self._log.commit(min(request.committed, matched))
        if folded := self._log.fold():
            effects.append(SaveFolded(self._log.base, self._log.witnesses_at_base, folded))
        return [*effects, self._appended(request, matched)]

    def _stored(self, request: Append) -> list[Effect]:
        """Stores the records from the first one on that is not in the log.

        The log keeps its end if it has all of them: a late or repeated request must not take back acknowledged records.
        """
        for at, record in enumerate(request.records):
            before = request.prev.index + at
            if not self._log.covers(record.position(before + 1)):
                self._log.replace(before, request.records[at:])
                return [SaveRecords(before, request.records[at:])]
        return []

    def _appended(self, request: Append, matched: int) -> Reply:
        return Reply(Appended(self._witness, request.generation, self._promised, matched, request.sent_at))

    def _fetched(self, request: Fetch) -> Fetched:
        log = self._log
        snapshot = log.snapshot() if request.after < log.base.index else None
        after = max(request.after, log.base.index)
        mine = 0 < request.generation == self._promised
        self._activity += mine
        records = log.part(after, log.last.index if mine else log.committed)
        return Fetched(
            witness=self._witness,
            generation=request.generation,
            promised=self._promised,
            activity=self._activity,
            after=after,
            records=records,
            committed=log.committed,
            last=log.last,
            witnesses=log.witnesses,
            snapshot=snapshot,
        )

    def check_invariants(self) -> None:
        assert self._log.base.index <= self._log.committed <= self._log.last.index
        assert self._log.last.generation <= self._promised
