"""Tells a standby whether a leader lives: the witnesses count its promises and appends."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rhino_core.witnesses.log import majority
from rhino_core.witnesses.messages import Fetched


@dataclass(slots=True)
class _Seen:
    count: tuple[int, int]  # promised generation, activity
    changed_at: float
    answered_at: float


class Silence:
    """The latest answers of the witnesses, by the standby's monotonic clock."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def heard(self, answer: Fetched, now: float) -> None:
        count = answer.promised, answer.activity
        before = self._seen.get(answer.witness)
        changed = before is None or before.count != count
        self._seen[answer.witness] = _Seen(count, now if before is None or changed else before.changed_at, now)

    def lasts(self, witnesses: Collection[str], now: float, silence_s: float, fresh_s: float) -> bool:
        """Whether a majority has answered within `fresh_s`, and has heard of no leader for `silence_s`.

        A leader reaches a majority, so one of these would have heard of it. A standby that sees only a few witnesses
        therefore never disturbs a leader with a higher generation.
        """
        quiet = [
            seen
            for witness, seen in self._seen.items()
            if witness in witnesses and now - seen.answered_at <= fresh_s and now - seen.changed_at >= silence_s
        ]
        return len(quiet) >= majority(len(witnesses))
