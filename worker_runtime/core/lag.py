"""How far the next workers in the chains are behind: what this worker still owes them (Rhino 4.2.2, phase 2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rhino.ids import GroupId, Lane
from worker_runtime.core.membership import life
from worker_runtime.core.outbox import FileKey, Outgoing

REPORT_S, REPORT_BYTES = 1.0, 64 * 1024 * 1024  # a smaller lag than both is nobody's concern


@dataclass(frozen=True, slots=True)
class Lag:
    """What worker `to` has not stored yet of what this one has for it.

    `oldest_s`: for how long the oldest changelog or zip has been owed, in seconds; somebody may wait for it. A data
    file may take as long as it is large: it counts by its bytes only.
    """

    group: GroupId
    to: str
    owed_bytes: int
    oldest_s: float


class LagMeter:
    """Times run from the measurement that has first seen a file owed."""

    def __init__(self) -> None:
        self._since: dict[tuple[FileKey, tuple[str, str]], float] = {}

    def measure(self, files: Iterable[Outgoing], now: float) -> tuple[Lag, ...]:
        """By group and receiver; `now` in monotonic seconds. Only the next in a chain: others wait for that one."""
        since: dict[tuple[FileKey, tuple[str, str]], float] = {}
        lags: dict[tuple[GroupId, str], Lag] = {}
        for out in files:
            if life(out.to) in out.stored:
                continue
            key = (FileKey(out.entry.store, out.entry.name), life(out.to))
            since[key] = self._since.get(key, now)
            age_s = now - since[key] if out.entry.lane is Lane.COMMIT else 0.0
            pair = (out.entry.store.group, out.to.worker_id)
            known = lags.get(pair, Lag(*pair, 0, 0.0))
            lags[pair] = Lag(*pair, known.owed_bytes + out.entry.size_bytes, max(known.oldest_s, age_s))
        self._since = since
        return tuple(lag for lag in lags.values() if lag.oldest_s >= REPORT_S or lag.owed_bytes >= REPORT_BYTES)
