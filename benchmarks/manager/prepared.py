"""The journal of a manager with all groups of its cluster."""

from __future__ import annotations

from pathlib import Path

from benchmarks.manager.shape import FIRST_VERSION, RETAINED, Shape, version_of
from replication_manager.protocol import events as ev
from replication_manager.service import stored
from rhino_core.folder import claim
from rhino_core.ids import Epoch
from rhino_core.journal import Journal

GROUPS_OF_A_WRITE = 1000


def prepare(folder: Path, shape: Shape) -> Epoch:
    """Writes it with the manager's own code, in writes of many groups. Returns the epoch of all groups."""
    claim(folder, "manager")
    journal = Journal(folder, bootstrap=True)
    try:
        epoch = Epoch(journal.generation, 1)
        stored.persist(journal, [ev.PersistWorker(shape.worker(number)) for number in range(shape.workers)])
        every = list(shape.replica_groups(epoch))
        for start in range(0, len(every), GROUPS_OF_A_WRITE):
            groups = every[start : start + GROUPS_OF_A_WRITE]
            floors = [version_of(group.group, FIRST_VERSION - RETAINED) for group in groups]
            effects: list[ev.Effect] = [*map(ev.PersistGroup, groups), *map(ev.PersistFloor, floors)]
            stored.persist(journal, effects)
    finally:
        journal.close()
    return epoch
