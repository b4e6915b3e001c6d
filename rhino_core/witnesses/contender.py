"""A manager with its journal on witnesses: it tails the journal, stands for leader after a silence, and leads.

Safety needs no clock and no random number. The clock decides only when a manager tries, and random pauses end duels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rhino_core.errors import UnavailableError
from rhino_core.witnesses import events as ev
from rhino_core.witnesses.leadership import BEATS, Identity, Leadership
from rhino_core.witnesses.log import KEPT, Log, majority
from rhino_core.witnesses.messages import ORIGIN, Appended, Fetch, Fetched, Position, Promise, Promised, Snapshot
from rhino_core.witnesses.silence import Silence


@dataclass(frozen=True, slots=True)
class Times:
    """`lease_s`: after this time without a leader another one may begin. Without a majority for half of it, one stops.

    `draw` returns a random number from 0 to 1.
    """

    lease_s: float
    draw: Callable[[], float]


@dataclass(slots=True)
class _Candidacy:
    """`source`: the witness with the greatest log, while the candidate reads this log.

    `moved_at`: when it began, or read something.
    """

    generation: int
    moved_at: float
    source: str = ""
    promises: dict[str, Promised] = field(default_factory=dict)


class Contender:
    """The core of a manager: first a standby.

    The log of a standby has committed records only. A candidate takes the rest over from the greatest log on a
    majority: this one has all committed records, as the log of a winner in Raft (section 5.4). The candidate gives
    up if this log changes while it reads: another leader of its generation has replaced records.
    """

    def __init__(
        self,
        me: Identity,
        witnesses: Iterable[str],
        times: Times,
        *,
        first_generation: int = 0,
        kept: int = KEPT,
        now: float = 0.0,
    ) -> None:
        """`witnesses`: asked until the journal names its own. `first_generation`: of a new journal; 0: begin none."""
        self._me = me
        self._named = tuple(sorted(set(witnesses)))
        self._times = times
        self._first_generation = first_generation
        self._log = Log(Snapshot(), kept=kept)
        self._highest = 0  # generation of any promise
        self._silence = Silence()
        # The greatest end of a log of a witness, and the newest set in this log.
        self._told: tuple[Position, tuple[str, ...]] = ORIGIN, ()
        self._beat_s = times.lease_s / BEATS
        self._rest(now, 0.0)

    def _rest(self, now: float, pause_s: float) -> None:
        """Becomes a standby."""
        self._candidacy: _Candidacy | None = None
        self._leadership: Leadership | None = None
        self._log.replace(self._log.committed, ())
        self._ask_at = now
        self._stand_at = now + pause_s  # not earlier
        self._silence_s = self._times.lease_s * (1 + self._times.draw() / 2)

    @property
    def leads(self) -> bool:
        """Whether it accepts writes."""
        return self._leadership is not None

    @property
    def witnesses(self) -> tuple[str, ...]:
        return self._log.witnesses or self._named

    def next_deadline(self) -> float | None:
        return self._ask_at if self._leadership is None else self._leadership.next_deadline()

    def handle(self, event: ev.Event, *, now: float) -> Sequence[ev.Effect]:
        """Raises UnavailableError for a write if this manager does not lead, and the errors of `Leadership.put`."""
        return [*self._handled(event, now), *self._due(now)]

    def _handled(self, event: ev.Event, now: float) -> Sequence[ev.Effect]:
        match event:
            case ev.Put():
                if self._leadership is None:
                    raise UnavailableError("this manager does not lead: send the request to the leader")
                return self._leadership.put(event, now)
            case Promised():
                return [*self._heard(event.promised, now), *self._promised(event, now)]
            case Appended():
                return [*self._heard(event.promised, now), *self._appended(event, now)]
            case Fetched():
                return [*self._heard(event.promised, now), *self._fetched(event, now)]
            case ev.Due():
                return []

    def _heard(self, promised: int, now: float) -> list[ev.Effect]:
        """A generation above its own ends a candidacy and a leadership."""
        self._highest = max(self._highest, promised)
        mine = self._leadership or self._candidacy
        if mine is None or promised <= mine.generation:
            return []
        return self._stop(f"another manager has generation {promised}, this one {mine.generation}", now)

    def _stop(self, reason: str, now: float) -> list[ev.Effect]:
        """Lets another one win, by a random pause."""
        led = self._leadership
        self._rest(now, self._beat_s + self._times.draw() * self._times.lease_s)
        return [] if led is None else [*led.stop(), ev.Stopped(reason)]

    def _due(self, now: float) -> Sequence[ev.Effect]:
        if self._leadership is not None:
            if now < self._leadership.ends_at:
                return self._leadership.due(now)
            return self._stop(f"no majority of the witnesses {', '.join(self.witnesses)} has answered in time", now)
        if now < self._ask_at:
            return []
        self._ask_at = now + self._beat_s
        if self._candidacy is not None:
            return self._ask_promises(self._candidacy, now)
        fresh_s = self._times.lease_s / 2
        sets = (self.witnesses, self._told[1])
        quiet = any(self._silence.lasts(one, now, self._silence_s, fresh_s) for one in sets if one)
        if now >= self._stand_at and quiet:
            self._candidacy = _Candidacy(max(self._highest + 1, self._first_generation), now)
            return self._ask_promises(self._candidacy, now)
        fetch = Fetch(self._me.cluster, self._log.last.index)
        return [ev.Send(witness, fetch) for witness in self._asked()]

    def _asked(self) -> list[str]:
        """The witnesses by its own log, and by the greatest log. Those of the former may be gone for ever."""
        return sorted({*self.witnesses, *self._told[1]})

    # ---------------------------------------------------------------- standby

    def _fetched(self, answer: Fetched, now: float) -> list[ev.Effect]:
        candidacy = self._candidacy
        if candidacy is not None:
            if (answer.generation, answer.witness) != (candidacy.generation, candidacy.source):
                return []
            if answer.last != candidacy.promises[answer.witness].last:
                return self._stop(f"another leader has changed the log of {answer.witness}", now)
            if answer.records or answer.snapshot is not None:
                candidacy.moved_at = now
            return [*self._learn(answer), *self._advance(candidacy, now)]
        if self._leadership is not None or answer.generation:
            return []
        self._silence.heard(answer, now)
        self._told = max(self._told, (answer.last, answer.witnesses))
        learned = self._learn(answer)
        if learned and self._log.last.index < answer.committed:
            learned.append(ev.Send(answer.witness, Fetch(self._me.cluster, self._log.last.index)))
        return learned

    def _learn(self, answer: Fetched) -> list[ev.Effect]:
        """Adds the records of the answer to the log, if they are its next ones."""
        effects: list[ev.Effect] = []
        if answer.snapshot is not None and answer.snapshot.last.index > self._log.committed:
            self._log.install(answer.snapshot)
            effects.append(ev.Restored(answer.snapshot))
        if answer.after != self._log.last.index:
            return effects
        first = self._log.committed + 1
        self._log.replace(answer.after, answer.records)
        committed = self._log.commit(min(answer.committed, self._log.last.index))
        self._log.fold()
        return [*effects, ev.Committed(first, committed)] if committed else effects

    # ---------------------------------------------------------------- candidate

    def _ask_promises(self, candidacy: _Candidacy, now: float) -> list[ev.Effect]:
        """Asks the witnesses without a promise, and reads on: former requests may be lost."""
        if now >= candidacy.moved_at + self._times.lease_s / 2:
            return self._stop(f"no majority has promised generation {candidacy.generation} in time", now)
        promise = Promise(self._me.cluster, candidacy.generation, self._me.candidate)
        asked: list[ev.Effect] = [ev.Send(one, promise) for one in self._asked() if one not in candidacy.promises]
        return [*asked, self._read(candidacy)] if candidacy.source else asked

    def _read(self, candidacy: _Candidacy) -> ev.Send:
        return ev.Send(candidacy.source, Fetch(self._me.cluster, self._log.last.index, candidacy.generation))

    def _promised(self, answer: Promised, now: float) -> list[ev.Effect]:
        candidacy = self._candidacy
        if candidacy is None or answer.generation != candidacy.generation:
            return []
        if not answer.granted:
            return self._stop(f"generation {answer.generation} is promised to another candidate", now)
        candidacy.promises[answer.witness] = answer
        return self._advance(candidacy, now)

    def _advance(self, candidacy: _Candidacy, now: float) -> list[ev.Effect]:
        """Reads the greatest log. The promises of a majority of its witnesses are needed, whoever they are."""
        best = max(candidacy.promises.values(), key=lambda promised: promised.last)
        if best.last > self._log.last:
            if best.witness != candidacy.source:
                candidacy.source = best.witness
                self._log.replace(self._log.committed, ())
            return [self._read(candidacy)]
        if sum(one in candidacy.promises for one in self.witnesses) < majority(len(self.witnesses)):
            return []
        if self._log.last == ORIGIN and not self._first_generation:
            return [*self._stop("the journal is empty", now), ev.JournalEmpty()]
        self._candidacy = None
        self._leadership = Leadership(self._me, candidacy.generation, self._log, self._times.lease_s)
        elected = ev.Elected(candidacy.generation, self._log.last)
        first = () if self._log.witnesses else self._named
        return [elected, *self._leadership.begin(first, now)]

    # ---------------------------------------------------------------- leader

    def _appended(self, answer: Appended, now: float) -> list[ev.Effect]:
        if self._leadership is None or answer.generation != self._leadership.generation:
            return []
        return self._leadership.appended(answer, now)

    def check_invariants(self) -> None:
        assert self._candidacy is None or self._leadership is None
        if self._candidacy is None and self._leadership is None:
            assert self._log.last.index == self._log.committed
