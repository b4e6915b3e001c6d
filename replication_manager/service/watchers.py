"""A mailbox for each WatchGroups stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from replication_manager.protocol.machine import ReplicationMachine
from replication_manager.protocol.pending_changes import PendingChanges, Update
from replication_manager.service.messages import floors_to_pb
from rhino_core.ids import Epoch, GroupId, ReplicaGroup, StoreVersion
from rhino_core.rpc import convert
from rhino_pb import common_pb2
from rhino_pb import replication_pb2 as pb


class Watcher:
    """Changes for one worker, as messages. `interested` are groups that it resolved without being a member."""

    def __init__(self, core: ReplicationMachine, worker_id: str, interested: set[GroupId]) -> None:
        self.worker_id = worker_id
        self._pending = PendingChanges(core, worker_id, interested)
        self._due = asyncio.Event()
        self.ended = False

    def end(self) -> None:
        """Ends this stream with its next message, because the worker has opened a new one."""
        self.ended = True
        self._due.set()

    def reported(self, worker_id: str, groups: Iterable[GroupId]) -> None:
        """A worker has reported what it stores of these groups."""
        self._wake(self._pending.reported(worker_id, groups))

    def group_changed(self, group: ReplicaGroup) -> None:
        self._wake(self._pending.group_changed(group))

    def groups_gone(self, groups: Iterable[GroupId]) -> None:
        self._wake(self._pending.groups_gone(groups))

    def job_forgotten(self, job: str, fence: Epoch) -> None:
        self._wake(self._pending.job_forgotten(job, fence))

    def workers_changed(self) -> None:
        self._wake(True)

    def floors_raised(self, floors: Iterable[StoreVersion]) -> None:
        self._wake(self._pending.floors_raised(floors))

    def _wake(self, due: bool) -> None:
        if due:
            self._due.set()

    def snapshot(self) -> pb.GroupUpdate:
        return _message(self._pending.snapshot())

    async def next(self) -> pb.GroupUpdate:
        """Waits for changes."""
        await self._due.wait()
        self._due.clear()
        return _message(self._pending.take())


def _message(update: Update) -> pb.GroupUpdate:
    return pb.GroupUpdate(
        snapshot=update.snapshot,
        groups=[convert.replica_group_to_pb(group) for group in update.groups],
        left=[convert.group_to_pb(group) for group in update.left],
        workers=[convert.worker_to_pb(worker) for worker in update.live],
        floors=floors_to_pb(update.floors),
        absent=[convert.worker_to_pb(worker) for worker in update.absent],
        forgotten=[
            common_pb2.ForgottenJob(job=job, fence=convert.epoch_to_pb(fence))
            for job, fence in update.forgotten.items()
        ],
    )
