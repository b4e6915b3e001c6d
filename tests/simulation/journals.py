"""The manager's journal is lost, or an older copy of it takes its place (docs/operate/disaster-recovery.md)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

COPIED_S, LATER_S = (0.0, 6.0), (0.5, 4.0)  # the second after the first
DOWN_S = (0.1, 1.0)
EMPTY = 0.4  # of the cases: there is no copy, and the manager starts with --bootstrap


class Journals:
    """Draws from a source of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = Random(f"journals of seed {cluster.world.seed}")

    def start(self) -> None:
        copied = self._random.uniform(*COPIED_S)
        self._world.at(copied, self._copy)
        self._world.at(copied + self._random.uniform(*LATER_S), self._replace)

    def _copy(self) -> None:
        self._copied = self._cluster.manager.journal.copy()

    def _replace(self) -> None:
        manager = self._cluster.manager
        if manager.up:
            manager.crash()
        empty = self._random.random() < EMPTY
        self._world.say("the journal is lost" if empty else "an older journal is restored")
        manager.replace_journal(None if empty else self._copied)
        self._world.after(self._random.uniform(*DOWN_S), lambda: None if manager.up else manager.start())
        if self._cluster.short_lived is not None:
            self._cluster.short_lived.forget_again()
