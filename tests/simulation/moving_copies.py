"""Copies that move to other workers, at random times and to random places instead of those that loads suggest."""

from __future__ import annotations

from random import Random
from typing import Any

from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine
from replication_manager.protocol.placement.better_places import Swap
from rhino_core.planning.correlation import Candidate

ROUND = 0.2  # probability that a batch ends a round


class MovingCopies:
    """Draws from a source of its own. `begun`: how many copies were to move."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"moving copies of seed {seed}")
        self.begun = 0

    def govern(self, core: ReplicationMachine) -> None:
        """Decides for this core when a round ends, and what moves then."""
        placing: Any = core._placing

        def better_places(job: str) -> list[Swap]:
            groups = [group for name in sorted(core.of_job(job)) if placing._is_settled(group := core.groups[name])]
            if not groups:
                return []
            group = self._random.choice(groups)
            origin = self._random.choice(group.members[1:]).worker.worker_id
            others = [name for name in sorted(core.membership.records) if group.member(name) is None]
            if not others:
                return []
            self.begun += 1
            target = self._random.choice(others)
            return [Swap(group.group, Candidate(origin, 0.0), Candidate(target, 0.0), None, 0.0)]

        def loads_seen(event: ev.BatchPublished) -> bool:
            return self._random.random() < ROUND

        placing.better_places, placing.loads_seen = better_places, loads_seen
