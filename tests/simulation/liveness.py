"""How long work stands still: the time from one logged batch of a store to the next."""

from __future__ import annotations

import itertools
from collections import defaultdict

from rhino_core.ids import StoreId
from tests.simulation.facts import require


class Progress:
    """Times at which batches were logged, in simulated seconds."""

    def __init__(self) -> None:
        self._logged_at: defaultdict[StoreId, list[float]] = defaultdict(list)

    def logged(self, store: StoreId, now: float) -> None:
        self._logged_at[store].append(now)

    def longest_wait(self, store: StoreId, since: float, until: float) -> float:
        """Without a logged batch, within this time."""
        times = [since, *(at for at in self._logged_at[store] if since < at < until), until]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def check(self, stores: list[StoreId], since: float, until: float, bound_s: float) -> None:
        """6. Liveness: whatever has gone wrong, no store stands still for longer than `bound_s`."""
        for store in stores:
            waited_s = self.longest_wait(store, since, until)
            require(waited_s <= bound_s, f"{store}: no batch was logged for {waited_s:.2f} s, more than {bound_s} s")
