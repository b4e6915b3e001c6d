"""The part of a leader: writes go to all witnesses, and are committed when a majority has them on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from rhino_core.errors import ConflictError, InvalidRequestError
from rhino_core.witnesses.events import Committed, Effect, Leads, Put, PutDone, PutFailed, Send
from rhino_core.witnesses.log import Log, majority
from rhino_core.witnesses.messages import Append, Appended, Record

BEATS = 6  # requests to a witness per lease; one without an answer for so long counts as lost


@dataclass(frozen=True, slots=True)
class Identity:
    """`candidate`: unique for one life of one manager. `cluster`: id of the cluster with this journal."""

    cluster: str
    candidate: str


@dataclass(slots=True)
class _Progress:
    """Of one witness. `next`: the next index to send. `matched`: on its disk up to here.

    `supports_at`: the leader's time of the newest answered append. One append is under way at a time (`waiting`): the
    writes of meanwhile go together, with one sync, in the next. It counts as lost at `due_at`.
    """

    next: int
    supports_at: float
    matched: int = 0
    waiting: bool = False
    sent_at: float = 0.0
    due_at: float = 0.0


class Leadership:
    """The leader of one generation, until `ends_at`.

    Writes of former generations are committed only by a write of this one behind them, as a majority with an old record
    does not prevent a later leader without it (Raft, section 5.4.2). The first write is therefore made at once.
    """

    def __init__(self, me: Identity, generation: int, log: Log, lease_s: float) -> None:
        self.generation = generation
        self._me = me
        self._log = log
        self._lease_s = lease_s
        self._progress: dict[str, _Progress] = {}
        self._puts: deque[tuple[int, int]] = deque()  # index and number of each write without an answer
        self._first = log.last.index + 1

    def begin(self, witnesses: tuple[str, ...], now: float) -> list[Effect]:
        """Makes the first write. `witnesses`: the set of a new journal; empty: the journal has one."""
        return self._write(Record(self.generation, {}, witnesses), now)

    @property
    def ends_at(self) -> float:
        """Without new answers, a majority has supported this leader for half a lease by then."""
        return self._of_majority(progress.supports_at for progress in self._members()) + self._lease_s / 2

    def next_deadline(self) -> float:
        return min(self.ends_at, min(progress.due_at for progress in self._members()))

    def _members(self) -> Iterator[_Progress]:
        return (self._progress[witness] for witness in self._log.witnesses)

    def _of_majority(self, values: Iterator[float]) -> float:
        """The highest value that a majority has reached."""
        return sorted(values, reverse=True)[majority(len(self._log.witnesses)) - 1]

    def put(self, event: Put, now: float) -> list[Effect]:
        """Raises InvalidRequestError and ConflictError for a set of witnesses, as in `Put`."""
        if event.witnesses:
            self._check_change(event.witnesses)
        self._puts.append((self._log.last.index + 1, event.number))
        return self._write(Record(self.generation, event.values, event.witnesses), now)

    def _check_change(self, witnesses: tuple[str, ...]) -> None:
        """Majorities of two sets overlap if the sets differ by one witness (Ongaro's thesis, section 4.1).

        The change before is committed, and so is a record of this generation (the correction of 2015).
        """
        if self._log.committed < max(self._first, self._log.changed_at):
            raise ConflictError("the former change of witnesses is not complete: try again")
        present = self._log.witnesses
        if witnesses != tuple(sorted(set(witnesses))) or len(set(witnesses) ^ set(present)) != 1:
            raise InvalidRequestError(
                f"witnesses {', '.join(witnesses)}: add one to {', '.join(present)}, or remove one, at a time"
            )

    def _write(self, record: Record, now: float) -> list[Effect]:
        self._log.replace(self._log.last.index, [record])
        if record.witnesses:
            self._progress = {one: progress for one, progress in self._progress.items() if one in record.witnesses}
        for witness in self._log.witnesses:
            if witness not in self._progress:
                self._progress[witness] = _Progress(self._log.last.index, now)
        return self.due(now)

    def due(self, now: float) -> list[Effect]:
        """Sends new writes to witnesses without an append under way, and a sign of life after each deadline."""
        due = [one for one in self._log.witnesses if self._is_due(self._progress[one], now)]
        return [self._append(witness, now) for witness in due]

    def _is_due(self, progress: _Progress, now: float) -> bool:
        return now >= progress.due_at or (not progress.waiting and progress.next <= self._log.last.index)

    def _append(self, witness: str, now: float) -> Send:
        log, progress = self._log, self._progress[witness]
        folded = progress.next <= log.base.index
        snapshot = log.snapshot() if folded else None
        prev = log.base if folded else log.at(progress.next - 1)
        records = log.part(prev.index, log.last.index)
        lost_s = self._lease_s if folded else self._lease_s / BEATS
        progress.waiting, progress.sent_at, progress.due_at = True, now, now + lost_s
        me, generation = self._me, self.generation
        return Send(witness, Append(me.cluster, generation, me.candidate, prev, records, log.committed, now, snapshot))

    def appended(self, answer: Appended, now: float) -> list[Effect]:
        """An answer to an append of this generation."""
        progress = self._progress.get(answer.witness)
        if progress is None:
            return []
        progress.matched = max(progress.matched, answer.matched)
        progress.next = progress.matched + 1
        progress.supports_at = max(progress.supports_at, answer.sent_at)
        if answer.sent_at == progress.sent_at:  # else a late or repeated answer
            progress.waiting = False
        return [*self._committed(), *self.due(now)]

    def _committed(self) -> list[Effect]:
        index = int(self._of_majority(progress.matched for progress in self._members()))
        before = self._log.committed
        if index <= before or self._log.at(index).generation != self.generation:
            return []
        effects: list[Effect] = [Committed(before + 1, self._log.commit(index))]
        if before < self._first:
            effects.append(Leads(self.generation))
        while self._puts and self._puts[0][0] <= index:
            effects.append(PutDone(self._puts.popleft()[1]))
        self._log.fold()
        return effects

    def stop(self) -> list[Effect]:
        return [PutFailed(number) for _, number in self._puts]
