"""Read access to the chain machine for the rest of the sidecar."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from rhino_core.ids import Epoch, GroupId, Lane, ReplicaGroup, StoreId, Version
from worker_runtime.protocol.chain.groups import Groups
from worker_runtime.protocol.chain.outbox import Outbox
from worker_runtime.protocol.chain.outgoing import Outgoing
from worker_runtime.protocol.chain.sending import Sending
from worker_runtime.protocol.keys import FileKey, Incarnation, incarnation_of, key_of

REPORT_S, REPORT_BYTES = 1.0, 64 * 1024 * 1024  # a lag below both limits is not reported


@dataclass(frozen=True, slots=True)
class Lag:
    """Bytes of the files under way from this worker to worker `to`, not stored there yet.

    `oldest_s`: how long the oldest changelog or zip has been pending, in seconds; a task may wait for it. A data file
    counts only by its bytes, because its transfer takes as long as its size requires.
    """

    group: GroupId
    to: str
    lag_bytes: int
    oldest_s: float


class LagMeter:
    """Measures ages from the first measurement with the file pending."""

    def __init__(self) -> None:
        self._since: dict[tuple[FileKey, Incarnation], float] = {}

    def measure(self, files: Iterable[Outgoing], now: float) -> tuple[Lag, ...]:
        """Lags by group and receiver; `now` in monotonic seconds.

        Counts only receivers with a direct offer from this worker. The others wait for the first worker of the chain.
        """
        since: dict[tuple[FileKey, Incarnation], float] = {}
        lags: dict[tuple[GroupId, str], Lag] = {}
        for out in files:
            for to in out.pending_directly():
                key = (key_of(out.entry), incarnation_of(to))
                since[key] = self._since.get(key, now)
                age_s = now - since[key] if out.entry.lane is Lane.COMMIT else 0.0
                pair = (out.entry.store.group, to.worker_id)
                known = lags.get(pair, Lag(*pair, 0, 0.0))
                lags[pair] = Lag(*pair, known.lag_bytes + out.entry.size_bytes, max(known.oldest_s, age_s))
        self._since = since
        return tuple(lag for lag in lags.values() if lag.oldest_s >= REPORT_S or lag.lag_bytes >= REPORT_BYTES)


class ChainView:
    """A read-only view of `ChainMachine`. The methods of `Groups`, `Outbox` and `Sending` say what each one means."""

    def __init__(self, groups: Groups, outbox: Outbox, sending: Sending) -> None:
        self._groups = groups
        self._outbox = outbox
        self._sending = sending
        self._lags = LagMeter()

    def group(self, group: GroupId) -> ReplicaGroup | None:
        return self._groups.get(group)

    def groups(self) -> Iterable[GroupId]:
        """The adopted groups."""
        return self._groups.ids()

    def epoch(self, group: GroupId) -> Epoch:
        return self._groups.epoch(group)

    def highest_epoch(self) -> Epoch:
        return self._groups.highest_epoch()

    def forgotten(self, group: GroupId) -> bool:
        return self._groups.forgotten(group)

    def whole(self, group: GroupId) -> bool:
        return self._groups.whole(group)

    def lags(self, now: float) -> tuple[Lag, ...]:
        """How far the next workers in the chains are behind.

        Call this once per heartbeat: ages are measured from one call to the next.
        """
        return self._lags.measure(self._outbox.values(), now)

    def pending_bytes(self) -> int:
        return self._outbox.pending_bytes()

    def given_up(self, store: StoreId) -> Set[str]:
        return self._sending.given_up(store)

    def names_in_use(self, store: StoreId, floor: Version | None) -> set[str]:
        return self._sending.names_in_use(store, floor)
