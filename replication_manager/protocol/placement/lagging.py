"""Members with a lag beyond a cap: the evidence, and the cooldown after a replacement.

The evidence comes from senders, in their heartbeats. It counts once it has lasted. A sender must be a member, and must
not lag with all its receivers: in that case it is slow itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from replication_manager.protocol.groups.group_table import GroupTable
from replication_manager.protocol.workers.membership import Membership
from replication_manager.protocol.workers.worker_record import Lag, WorkerRecord, WorkerState
from rhino_core.ids import GroupId, StoreVersion

PROOF_S = 5.0  # a lag beyond the cap counts once it has lasted this long
# A laggard hangs if it has stored no version for so long while somebody waited: nobody becomes whole beside it.
PATIENCE_S = 5.0
# Cooldown of a worker that was dropped: it is placed nowhere. The cooldown doubles each time, up to COOLDOWN_S_MAX.
COOLDOWN_S = 300.0
COOLDOWN_S_MAX = 3600.0  # also: the history of a worker is forgotten this long after its last cooldown
CALM = 0.5  # part of the cap: a lag has ended when it is below that


@dataclass(frozen=True, slots=True)
class LagCap:
    """How far a member may be behind its predecessor in the chain.

    `seconds` is the age of a changelog or zip, `lag_bytes` the bytes of all files. 0: no limit.
    """

    seconds: float = 20.0
    lag_bytes: int = 32 << 30

    def exceeded(self, lag: Lag, part: float = 1.0) -> bool:
        late = self.seconds > 0 and lag.oldest_s > self.seconds * part
        return late or (self.lag_bytes > 0 and lag.lag_bytes > self.lag_bytes * part)


@dataclass(frozen=True, slots=True)
class LeavingLaggard:
    """A laggard that leaves once its replacement is whole. It has held `held` since monotonic time `since`.

    `replacement`: the member added for it. Empty: no worker is eligible, or the chain was already longer than usual.
    """

    worker_id: str
    replacement: str
    held: frozenset[StoreVersion]
    since: float

    def hangs(self, now: float) -> bool:
        return now - self.since >= PATIENCE_S


@dataclass(slots=True)
class _Cooldown:
    until: float
    length_s: float


class Laggards:
    """Not journalled: a restarted manager learns of lags again, and may try a slow worker once more.

    The cost of a heartbeat depends on its own lags, not on the number of other lagging workers.
    """

    def __init__(self, cap: LagCap, membership: Membership, table: GroupTable, now: float) -> None:
        self._cap = cap
        self._membership = membership
        self._table = table
        self._looked_at = now
        self._since: dict[str, dict[tuple[GroupId, str], float]] = {}  # by sender: start of each lag beyond the cap
        self._cooldowns: dict[str, _Cooldown] = {}
        self._seen_in_cooldown: set[str] = set()  # workers in cooldown at the last call of `cooldown_ended`
        self.leaving: dict[GroupId, LeavingLaggard] = {}

    def judge(self, record: WorkerRecord, now: float) -> list[tuple[GroupId, str]]:
        """Judges the lags of a worker's newest heartbeat. Returns the proved ones: groups with their members."""
        me = record.worker.worker_id
        before, since = self._since.get(me, {}), dict[tuple[GroupId, str], float]()
        for lag in self._credible(record) if record.lags else ():
            to = self._membership.records.get(lag.to)
            if to is None or to.state is not WorkerState.LIVE:
                continue  # a member that is away has time until its lease ends
            pair = (lag.group, lag.to)
            began = before.get(pair)
            if self._cap.exceeded(lag, 1.0 if began is None else CALM):
                since[pair] = now if began is None else began
        if since:
            self._since[me] = since
        else:
            self._since.pop(me, None)
        return sorted(pair for pair, began in since.items() if now - began >= PROOF_S)

    def proved(self, group: GroupId, worker_id: str, now: float) -> bool:
        """Whether some sender has proved a lag of this member."""
        began = (since.get((group, worker_id)) for since in self._since.values())
        return any(at is not None and now - at >= PROOF_S for at in began)

    def forget(self, worker_id: str) -> None:
        """The worker is lost, or another one than before: its reports about others no longer count."""
        self._since.pop(worker_id, None)

    def _credible(self, record: WorkerRecord) -> list[Lag]:
        """A member's reported lags of other members. Empty if it has several receivers and lags with all of them."""
        me = record.worker.worker_id
        late = {lag.to for lag in record.lags if self._cap.exceeded(lag, CALM)}
        owned = (group for group in self._table.groups_of(me) if group.owner.worker_id == me)
        receivers = {group.members[1].worker.worker_id for group in owned if len(group.members) > 1}
        if len(receivers) > 1 and receivers <= late:
            return []
        known = [(lag, group) for lag in record.lags if (group := self._table.by_id.get(lag.group)) is not None]
        return [lag for lag, group in known if group.member(me) and group.member(lag.to)]

    def dropped(self, group: GroupId, worker_id: str, now: float) -> None:
        """Starts the cooldown of a worker after it left this group because of its lag.

        Further departures during the same cooldown change nothing.
        """
        for since in self._since.values():
            since.pop((group, worker_id), None)
        former = self._cooldowns.get(worker_id)
        if former is not None and former.until > now:
            return
        length_s = min(former.length_s * 2, COOLDOWN_S_MAX) if former is not None else COOLDOWN_S
        self._cooldowns[worker_id] = _Cooldown(now + length_s, length_s)
        self._seen_in_cooldown.add(worker_id)

    def in_cooldown(self, now: float) -> set[str]:
        """Workers excluded from placement: dropped lately, or lagging right now."""
        dropped = {worker_id for worker_id, cooldown in self._cooldowns.items() if cooldown.until > now}
        return dropped | {to for since in self._since.values() for _, to in since}

    def cooldown_ended(self, now: float) -> bool:
        """Whether some worker has ceased to be `in_cooldown` since the last call. Forgets old cooldowns."""
        before, self._looked_at = self._seen_in_cooldown, now
        self._seen_in_cooldown = self.in_cooldown(now)
        ended = not before <= self._seen_in_cooldown
        self._cooldowns = {
            w: cooldown for w, cooldown in self._cooldowns.items() if now < cooldown.until + COOLDOWN_S_MAX
        }
        return ended

    def next_deadline(self) -> float | None:
        """When `cooldown_ended` will next be true."""
        return min(
            (cooldown.until for cooldown in self._cooldowns.values() if cooldown.until > self._looked_at), default=None
        )
