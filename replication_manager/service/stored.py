"""Journal records of the replication manager: mostly the protobuf messages of the wire."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, assert_never

from google.protobuf.message import DecodeError, Message

from replication_manager.protocol import events as ev
from replication_manager.protocol.machine import ReplicationMachine, Restored
from replication_manager.protocol.placement.lagging import LagCap
from replication_manager.protocol.workers.membership import LeaseTimes
from rhino_core.epochs import is_possible
from rhino_core.errors import InvalidRequestError
from rhino_core.ids import PROCESS_BITS, Epoch, ReplicaGroup, StoreVersion, Worker, is_safe
from rhino_core.journal import Journal
from rhino_core.records import decode
from rhino_core.rpc import convert, gate
from rhino_core.settings import ManagerSettings
from rhino_pb import common_pb2

log = logging.getLogger(__name__)
T = TypeVar("T")
FORGOTTEN = "replication/forgotten/"  # jobs with their fences
DRAINING = "replication/draining/"  # workers


@dataclass(frozen=True, slots=True)
class MessageRecords(Generic[T]):
    """The records of one kind under their prefix."""

    prefix: str
    message: type[Message]
    to_message: Callable[[T], Message]
    of_message: Callable[[Any], T]

    def key(self, name: object) -> str:
        return f"{self.prefix}{name}"

    def encode(self, value: T) -> bytes:
        return self.to_message(value).SerializeToString()

    def load(self, journal: Journal) -> list[T]:
        """All values, without fields known only to a newer version.

        Unreadable records, and those refused by the gate, are left out: no sidecar accepts them.
        """
        found = []
        for key, data in journal.items(self.prefix):
            message = self.message()
            try:
                message.ParseFromString(data)
                if isinstance(message, common_pb2.ReplicaGroup) and not is_possible(convert.epoch_of(message.epoch)):
                    message.ClearField("epoch")  # the members report theirs, and the group is renewed beyond these
                gate.check(message)
                if isinstance(message, common_pb2.ReplicaGroup):
                    _check_members(message)
            except (DecodeError, TypeError, InvalidRequestError) as error:
                log.error("a record of the journal is left out", extra={"key": key[:200], "error": str(error)})
            else:
                found.append(self.of_message(message))
        return found


WORKERS: MessageRecords[Worker] = MessageRecords(
    "replication/worker/", common_pb2.Worker, convert.labelled_worker_to_pb, convert.worker_of
)
GROUPS: MessageRecords[ReplicaGroup] = MessageRecords(
    "replication/group/", common_pb2.ReplicaGroup, convert.replica_group_to_pb, convert.replica_group_of
)
FLOORS: MessageRecords[StoreVersion] = MessageRecords(
    "replication/floor/", common_pb2.StoreVersion, convert.store_version_to_pb, convert.store_version_of
)


def _check_members(group: common_pb2.ReplicaGroup) -> None:
    """Raises InvalidRequestError for a group without an owner, or with a worker twice."""
    workers = [member.worker.worker_id for member in group.members]
    if not workers or len(set(workers)) < len(workers):
        raise InvalidRequestError(f"members of the group: {workers}: must be one worker or more, and each of them once")


def load_fences(journal: Journal) -> dict[str, Epoch]:
    """Fences by forgotten job.

    An impossible fence is replaced: sidecars refuse it, and no epoch could ever exceed it.
    """
    fences = {key.removeprefix(FORGOTTEN): decode(Epoch, value, key) for key, value in journal.items(FORGOTTEN)}
    newest = Epoch(journal.generation, 0)
    return {job: fence if is_possible(fence) else newest for job, fence in fences.items() if is_safe(job)}


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
        draining=[name for key, _ in journal.items(DRAINING) if is_safe(name := key.removeprefix(DRAINING))],
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
