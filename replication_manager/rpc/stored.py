"""What the replication manager journals: workers, groups and floors, as JSON of their protobuf messages."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict, ParseDict

from replication_manager.core.machine import ReplicationMachine
from rhino.ids import ReplicaGroup, StoreVersion, Worker
from rhino.journal import Journal
from rhino.rpc import convert
from rhino.settings import ManagerSettings
from rhino_pb import common_pb2

WORKER, GROUP, FLOOR = "replication/worker/", "replication/group/", "replication/floor/"


def put_worker(journal: Journal, worker: Worker) -> None:
    journal.put(WORKER + worker.worker_id, MessageToDict(convert.worker_to_pb(worker)))


def put_group(journal: Journal, group: ReplicaGroup) -> None:
    journal.put(GROUP + str(group.group), MessageToDict(convert.replica_group_to_pb(group)))


def put_floor(journal: Journal, floor: StoreVersion) -> None:
    journal.put(FLOOR + str(floor.store), MessageToDict(convert.store_version_to_pb(floor)))


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
    )
