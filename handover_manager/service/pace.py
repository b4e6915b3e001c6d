"""Limits the rate of one driver's queries unknown to the manager: each of them is journalled for ever."""

from __future__ import annotations

from collections import OrderedDict

AT_ONCE = 200
EVERY_S = 5.0  # for each further one
CALLERS_MAX = 1000


class Pace:
    """By caller. If there is no room for another one, the caller silent for the longest time is forgotten."""

    def __init__(self) -> None:
        self._even_at: OrderedDict[str, float] = OrderedDict()  # when the caller may again name AT_ONCE

    def wait_s(self, caller: str, now: float) -> float:
        """The caller's waiting time for one more query, in seconds. The query counts from this call on."""
        even_at = max(self._even_at.pop(caller, now), now) + EVERY_S
        self._even_at[caller] = even_at
        if len(self._even_at) > CALLERS_MAX:
            self._even_at.popitem(last=False)
        return max(even_at - now - AT_ONCE * EVERY_S, 0.0)
