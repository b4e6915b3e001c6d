"""Members that lag beyond a cap: who they are, on what evidence, and for how long they are left alone afterwards.

The evidence is what senders report in their heartbeats. It counts when it lasts, and when the sender is a member that
does not lag with everybody it sends to: then it is slow itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replication_manager.core.membership import Lag, WorkerRecord
from rhino.ids import GroupId, ReplicaGroup

PROOF_S = 5.0  # a lag beyond the cap counts once it has lasted so long
PATIENCE_S = 30.0  # for the replacement to become whole: a member that hangs would keep it from that for ever
REST_S = 300.0  # a worker that was dropped is placed nowhere for this long; doubled each time, up to
REST_S_MAX = 3600.0  # this; forgotten when it has not been dropped for so long after its rest
CALM = 0.5  # of the cap: a lag has ended when it is below that


@dataclass(frozen=True, slots=True)
class LagCap:
    """A member is dropped that its predecessor owes a changelog or zip for more than `seconds`, or more than
    `owed_bytes`; 0: no cap."""

    seconds: float = 20.0
    owed_bytes: int = 32 << 30

    def exceeded(self, lag: Lag, part: float = 1.0) -> bool:
        late = self.seconds > 0 and lag.oldest_s > self.seconds * part
        return late or (self.owed_bytes > 0 and lag.owed_bytes > self.owed_bytes * part)


@dataclass(frozen=True, slots=True)
class Leaving:
    """A laggard that goes once the member that was added for it, at monotonic time `since`, is whole."""

    worker_id: str
    since: float

    def overdue(self, now: float) -> bool:
        return now - self.since >= PATIENCE_S


@dataclass(slots=True)
class _Rest:
    until: float
    length_s: float


class Laggards:
    """Not journalled: a restarted manager hears of lags again, and may try a slow worker once more."""

    def __init__(self, cap: LagCap, now: float) -> None:
        self._cap = cap
        self._looked_at = now
        self._since: dict[tuple[GroupId, str], float] = {}  # beyond the cap from then on
        self._rests: dict[str, _Rest] = {}
        self._seen_resting: set[str] = set()  # those that were resting when this was looked at last
        self.leaving: dict[GroupId, Leaving] = {}

    def judge(
        self, records: Iterable[WorkerRecord], groups: Mapping[GroupId, ReplicaGroup], now: float
    ) -> list[tuple[GroupId, str]]:
        """Members with a lag that is proved, by group."""
        since: dict[tuple[GroupId, str], float] = {}
        for record in records:
            for lag in self._credible(record, groups) if record.present else ():
                pair = (lag.group, lag.to)
                began = self._since.get(pair)
                if self._cap.exceeded(lag, 1.0 if began is None else CALM):
                    since[pair] = now if began is None else began
        self._since = since
        return sorted(pair for pair, began in since.items() if now - began >= PROOF_S)

    def _credible(self, record: WorkerRecord, groups: Mapping[GroupId, ReplicaGroup]) -> list[Lag]:
        """Of members, by a member that has somebody who keeps up, or just one to send to."""
        me = record.worker.worker_id
        if not record.lags:
            return []
        late = {lag.to for lag in record.lags if self._cap.exceeded(lag, CALM)}
        owned = (group for group in groups.values() if group.owner.worker_id == me)
        receivers = {group.members[1].worker.worker_id for group in owned if len(group.members) > 1}
        if len(receivers) > 1 and receivers <= late:
            return []
        known = [(lag, group) for lag in record.lags if (group := groups.get(lag.group)) is not None]
        return [lag for lag, group in known if group.member(me) and group.member(lag.to)]

    def dropped(self, worker_id: str, now: float) -> None:
        """It has left a group because of its lag: it rests. Further groups in the same rest change nothing."""
        former = self._rests.get(worker_id)
        if former is not None and former.until > now:
            return
        length_s = min(former.length_s * 2, REST_S_MAX) if former is not None else REST_S
        self._rests[worker_id] = _Rest(now + length_s, length_s)
        self._seen_resting.add(worker_id)

    def resting(self, now: float) -> set[str]:
        """Workers that are placed nowhere, because they were dropped lately or lag right now."""
        return {worker_id for worker_id, rest in self._rests.items() if rest.until > now} | {
            to for _, to in self._since
        }

    def rested(self, now: float) -> bool:
        """Whether somebody has ceased to be `resting` since the last call. Old rests are forgotten."""
        before, self._looked_at = self._seen_resting, now
        self._seen_resting = self.resting(now)
        ended = not before <= self._seen_resting
        self._rests = {w: rest for w, rest in self._rests.items() if now < rest.until + REST_S_MAX}
        return ended

    def next_deadline(self) -> float | None:
        """When `rested` will say so."""
        return min((rest.until for rest in self._rests.values() if rest.until > self._looked_at), default=None)
