"""The rule of this controller. It has no I/O, so that it can be tested with made-up batches.

It asks for a rebalance by time when a query was uneven in several batches in a row. That is far simpler than the
adaptation of the manager. It shows the form of a controller: put DS2, Dhalion or a rule of your own in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rhino import BatchLoad


@dataclass(slots=True)
class Controller:
    """`band`: the imbalance that is all right, above 1. `batches`: uneven ones in a row before it acts.

    `pause`: batches of a query after a request in which nothing is asked for, because the first ones load state.
    """

    band: float = 0.2
    batches: int = 5
    pause: int = 10
    _uneven: dict[str, int] = field(default_factory=dict)
    _pausing: dict[str, int] = field(default_factory=dict)

    def batch(self, load: BatchLoad) -> bool:
        """Takes a batch. Returns whether its query should be rebalanced now."""
        left = self._pausing.get(load.job, 0)
        if left:
            self._pausing[load.job] = left - 1
            return False
        uneven = load.imbalance is not None and load.imbalance > 1 + self.band
        self._uneven[load.job] = self._uneven.get(load.job, 0) + 1 if uneven else 0
        if self._uneven[load.job] < self.batches:
            return False
        self._uneven[load.job], self._pausing[load.job] = 0, self.pause
        return True
