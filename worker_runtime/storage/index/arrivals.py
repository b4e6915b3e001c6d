"""Arrival times of files, by a clock that never goes back.

Retention compares arrival times (protocol/versions/closure.py). The wall clock may be set back. Then each new data file
would seem older than the newest snapshot, and would be deleted before its own zip arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Arrivals:
    """A clock in nanoseconds. It continues from the newest stored file.

    The time between two processes is left out, so files seem younger than they are and stay longer.
    """

    def __init__(self, newest_ns: int = 0, at_least_ns: int = 0, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """`newest_ns`: the latest time given to a stored file by this clock.

        `at_least_ns`: a persisted time. New files get a later one.
        """
        self.newest_ns = newest_ns
        self._clock = clock
        self._offset_ns = max(newest_ns, at_least_ns + 1) - clock()

    def now_ns(self) -> int:
        """The arrival time of a file just moved into place. Call it in the order of arrival."""
        self.newest_ns = self._offset_ns + self._clock()
        return self.newest_ns
