"""Upper limits for epochs. They reject impossible values from other processes and from disk."""

from __future__ import annotations

import time

from rhino_core.ids import COUNTER_MAX, Epoch

_DAWN_S = 1_767_225_600  # start of 2026; the clock of a cluster that shows an earlier time is wrong
_YEAR_S = 366 * 86_400


def generation_ceiling() -> int:
    """Highest generation accepted by a manager from another process: the present time plus ten years, in milliseconds.

    A first generation is the manager's clock in milliseconds, and each start raises it. A manager can therefore always
    exceed an accepted claim.
    """
    return _from_now(10)


def issued_ceiling() -> int:
    """Highest generation that a manager itself can issue after it has exceeded an accepted claim.

    The limit is one year above `generation_ceiling`, because a process computes it once at its start, possibly long
    before the manager computes its own.
    """
    return _from_now(11)


def is_possible(epoch: Epoch) -> bool:
    """Whether a manager can have issued this epoch."""
    return 0 <= epoch.generation <= issued_ceiling() and 0 <= epoch.counter <= COUNTER_MAX


def _from_now(years: int) -> int:
    return int((max(time.time(), _DAWN_S) + years * _YEAR_S) * 1000)
