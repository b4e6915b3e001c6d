"""Journal records of the replication manager: workers, groups, floors, fences and draining marks."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any, assert_never

from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine, Restored
from replication_manager.protocol.placement.lagging import LagCap
from replication_manager.protocol.workers.membership import LeaseTimes
from replication_manager.service.records import (
    DRAINING,
    FLOORS,
    FORGOTTEN,
    GROUPS,
    WORKERS,
    load_draining,
    load_fences,
)
from rhino_core.ids import PROCESS_BITS
from rhino_core.journal import Journal
from rhino_core.settings import ManagerSettings


def persist(journal: Journal, effects: Iterable[ev.Effect]) -> None:
    """Journals the records of all effects, as one write. It is on disk when this returns."""
    newest: dict[str, Any] = {}  # by key; None: delete it
    generation = 0
    for effect in effects:
        match effect:
            case ev.PersistGeneration(seen):
                generation = max(generation, seen)
            case ev.PersistWorker(worker):
                newest[WORKERS.key(worker.worker_id)] = WORKERS.encode(worker)
            case ev.PersistGroup(group):
                newest[GROUPS.key(group.group)] = GROUPS.encode(group)
            case ev.PersistFloor(floor):
                newest[FLOORS.key(floor.store)] = FLOORS.encode(floor)
            case ev.PersistForgotten(job, fence):
                newest[FORGOTTEN + job] = fence
            case ev.PersistDraining(worker_id, draining):
                newest[DRAINING + worker_id] = draining or None
            case ev.DropGroups(groups, floors):
                newest |= dict.fromkeys([*map(GROUPS.key, groups), *map(FLOORS.key, floors)])
            case ev.DropWorker(worker_id):
                newest[WORKERS.key(worker_id)] = None
            case ev.PublishGroup() | ev.PublishWorkers() | ev.PublishFloors() | ev.PublishForgotten():
                continue
            case _:
                assert_never(effect)
    values = {key: value for key, value in newest.items() if value is not None}
    journal.write(values, newest.keys() - values.keys(), generation=generation)


def restore(journal: Journal, settings: ManagerSettings, now: float) -> ReplicationMachine:
    """The core as journalled, in the journal's present generation."""
    restored = Restored(
        generation=journal.generation,
        workers=WORKERS.load(journal),
        groups=GROUPS.load(journal),
        floors=FLOORS.load(journal),
        forgotten=load_fences(journal),
        draining=load_draining(journal),
        fresh=journal.fresh,
    )
    return ReplicationMachine(
        restored,
        LeaseTimes(settings.lease_s, settings.suspect_lease_s, settings.return_lease_s),
        now=now,
        process_number=secrets.randbelow(1 << PROCESS_BITS),
        lag_cap=LagCap(settings.lag_cap_s, settings.lag_cap_bytes),
        scatter_width=settings.scatter_width,
    )
