"""Epochs issued by this manager."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from rhino_core.ids import COUNT_BITS, Epoch


class Epochs:
    """Issues epochs (generation, counter) in rising order.

    `process_number` is a random number of PROCESS_BITS bits. It fills the upper bits of the counter, so two managers
    that reach the same generation never issue the same epoch.
    """

    def __init__(self, generation: int, process_number: int) -> None:
        self.generation = generation
        self._counter = self._first = process_number << COUNT_BITS

    @property
    def newest(self) -> Epoch:
        return Epoch(self.generation, self._counter)

    def next(self) -> Epoch:
        self._counter += 1
        return self.newest

    def exceed(self, seen: Epoch) -> list[ev.Effect]:
        """Raises the generation above an epoch seen by a sidecar."""
        if seen <= self.newest:
            return []
        self.generation, self._counter = seen.generation + 1, self._first
        return [ev.PersistGeneration(self.generation)]
