"""An application with executors on some workers only: what it writes it mostly writes as a guest.

And what must come of it: who goes on writing owns the group (docs/design/membership.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from rhino_core.ids import GroupId, ReplicaGroup, StoreId
from tests.simulation.facts import require

if TYPE_CHECKING:
    from tests.simulation.sidecar import Sidecar

ELSEWHERE = 0.1  # of the batches while there are faults: for a while no slot is free
STEADY_S = 6.0  # of batches by one worker, after which it must be the owner


class Executors:
    """Spark runs a task where it ran before when the map names nobody with an executor. Draws from a source of its
    own."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"executors of seed {seed}")
        self._places: dict[int, str] = {}  # by partition: its operators run in one task
        self._moving = True

    def stay(self, groups: Iterable[ReplicaGroup], workers: Iterable[str]) -> None:
        """From now on they do: on workers that are no members, where there are any."""
        self._moving = False
        members: defaultdict[int, set[str]] = defaultdict(set)
        for group in groups:
            members[group.group.partition] |= {m.worker.worker_id for m in group.members}
        for partition, known in members.items():
            self._places[partition] = self._random.choice(sorted(set(workers) - known) or sorted(known))

    def place(self, store: StoreId, up: list[Sidecar]) -> Sidecar | None:
        """`up`: in any order."""
        there = {sidecar.name: sidecar for sidecar in up}
        former = there.get(self._places.get(store.partition, ""))
        if former is not None and not (self._moving and self._random.random() < ELSEWHERE):
            return former
        if not there:
            return None
        name = self._places[store.partition] = self._random.choice(sorted(there))
        return there[name]


class Steady:
    """Since when one worker writes each group, as Spark's commit log has it."""

    def __init__(self) -> None:
        self._since: dict[GroupId, tuple[str, float]] = {}
        self._last: dict[GroupId, float] = {}

    def logged(self, group: GroupId, writer: str, now: float) -> None:
        if self._since.get(group, ("", 0.0))[0] != writer:
            self._since[group] = (writer, now)
        self._last[group] = now

    def moved(self, group: GroupId, now: float) -> None:
        """A handover has named the owner: the count begins here."""
        if group in self._since:
            self._since[group] = (self._since[group][0], now)

    def owners(self, groups: list[ReplicaGroup], draining: set[str]) -> None:
        """10. The worker that has written a group steadily owns it. One worker owns all operators of one task."""
        of_task: defaultdict[tuple[str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for group in groups:
            writer, since = self._since.get(group.group, ("", 0.0))
            if writer in draining or self._last.get(group.group, 0.0) - since < STEADY_S:
                continue
            owner = group.owner.worker_id
            require(owner == writer, f"{group.group} at {group.epoch}: {owner} owns it, {writer} writes since {since}")
            of_task[group.group.job, group.group.partition][writer].add(owner)
        for task, by_writer in of_task.items():
            for writer, owners in by_writer.items():
                require(len(owners) == 1, f"{task}, written by {writer}, has several owners: {sorted(owners)}")
