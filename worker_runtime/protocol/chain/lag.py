"""Measures the lag of this worker's receivers: files not stored yet (Rhino 4.2.2, phase 2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rhino_core.ids import GroupId, Lane
from worker_runtime.protocol.chain.outgoing import Outgoing
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
