"""What the replication manager journals: workers, groups and floors, as JSON of their protobuf messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict

from replication_manager.core import events as ev
from replication_manager.core.lagging import LagCap
from replication_manager.core.machine import ReplicationMachine
from rhino.ids import Epoch
from rhino.journal import Journal
from rhino.rpc import convert
from rhino.settings import ManagerSettings
from rhino_pb import common_pb2

WORKER, GROUP, FLOOR = "replication/worker/", "replication/group/", "replication/floor/"
FORGOTTEN, DRAINING = "replication/forgotten/", "replication/draining/"


def persist(journal: Journal, effects: Iterable[ev.Effect]) -> None:
    """Everything that the effects want journalled, on disk when it returns; with one sync for all that one event did.

    The generation goes first: no epoch of a generation may be on disk that the journal could issue again.
    """
    values: dict[str, Any] = {}
    gone: list[str] = []
    for effect in effects:
        match effect:
            case ev.PersistGeneration(generation):
                journal.raise_generation(generation)
            case ev.PersistWorker(worker):
                values[WORKER + worker.worker_id] = MessageToDict(convert.worker_to_pb(worker))
            case ev.PersistGroup(group):
                values[GROUP + str(group.group)] = MessageToDict(convert.replica_group_to_pb(group))
            case ev.PersistFloor(floor):
                values[FLOOR + str(floor.store)] = MessageToDict(convert.store_version_to_pb(floor))
            case ev.PersistForgotten(job, fence):
                values[FORGOTTEN + job] = list(fence)
            case ev.PersistDraining(worker_id, True):
                values[DRAINING + worker_id] = True
            case ev.PersistDraining(worker_id):
                gone.append(DRAINING + worker_id)
            case ev.DropGroups(groups, floors):
                gone += [*(GROUP + str(group) for group in groups), *(FLOOR + str(store) for store in floors)]
            case ev.DropWorker(worker_id):
                gone.append(WORKER + worker_id)
            case ev.PublishGroup() | ev.PublishWorkers() | ev.PublishFloors() | ev.PublishForgotten():
                continue
    journal.put_all(values, gone)


def restore(journal: Journal, settings: ManagerSettings, now: float) -> ReplicationMachine:
    """The core as the journal knows it, in the journal's present generation."""
    return ReplicationMachine(
        generation=journal.generation,
        lease_s=settings.lease_s,
        suspect_lease_s=settings.suspect_lease_s,
        now=now,
        workers=[convert.worker_of(ParseDict(v, common_pb2.Worker())) for _, v in journal.items(WORKER)],
        groups=[convert.replica_group_of(ParseDict(v, common_pb2.ReplicaGroup())) for _, v in journal.items(GROUP)],
        floors=[convert.store_version_of(ParseDict(v, common_pb2.StoreVersion())) for _, v in journal.items(FLOOR)],
        fresh=journal.fresh,
        lag_cap=LagCap(settings.lag_cap_s, settings.lag_cap_bytes),
        draining=[key.removeprefix(DRAINING) for key, _ in journal.items(DRAINING)],
        forgotten={key.removeprefix(FORGOTTEN): Epoch(*value) for key, value in journal.items(FORGOTTEN)},
    )
