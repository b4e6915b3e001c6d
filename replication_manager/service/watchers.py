"""A mailbox for each WatchGroups stream."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from replication_manager.protocol.machine import ReplicationMachine
from replication_manager.protocol.pending_changes import PendingChanges, Update
from rhino_core.ids import Epoch, GroupId, ReplicaGroup, StoreVersion
from rhino_core.rpc import convert
from rhino_pb import common_pb2
from rhino_pb import replication_pb2 as pb

# A change of the workers concerns every stream, and each message names all workers. When many workers come at once, as
# after a restart of the manager, one message tells of all that came within this time, for each stream.
PAUSE_S_PER_STREAM = 0.001
PAUSE_S_MAX = 2.0
FLOORS_PAUSE_S = 0.2


class News:
    """The list of all workers, made once for all streams."""

    def __init__(self, core: ReplicationMachine) -> None:
        self._membership = core.membership
        self._made = pb.GroupUpdate()
        self._made_of = -1  # edition
        self.pause_s = 0.0  # of a stream, before it tells of another list

    @property
    def edition(self) -> int:
        """It is another one whenever the list is."""
        return self._membership.edition

    def streams(self, count: int) -> None:
        self.pause_s = min(count * PAUSE_S_PER_STREAM, PAUSE_S_MAX)

    def workers(self) -> pb.GroupUpdate:
        """A message with the workers only."""
        if self._made_of != self.edition:
            self._made_of = self.edition
            self._made = pb.GroupUpdate(
                workers=map(convert.worker_to_pb, self._membership.present()),
                absent=map(convert.worker_to_pb, self._membership.absent()),
            )
        return self._made


class Watcher:
    """Changes for one worker, as messages. `interested`: groups that it resolved without being a member."""

    def __init__(
        self,
        core: ReplicationMachine,
        worker_id: str,
        interested: set[GroupId],
        news: News,
    ) -> None:
        self.worker_id = worker_id
        self._pending = PendingChanges(core, worker_id, interested)
        self._news = news
        self._told = -1  # edition of the workers that it has been told
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self.ended = False

    def end(self) -> None:
        """Ends this stream with its next message, because the worker has opened a new one."""
        self.ended = True
        self._due.set()

    def reported(self, worker_id: str, groups: Iterable[GroupId]) -> None:
        self._wake(self._pending.reported(worker_id, groups))

    def group_changed(self, group: ReplicaGroup) -> None:
        self._wake(self._pending.group_changed(group))

    def groups_gone(self, groups: Iterable[GroupId]) -> None:
        self._wake(self._pending.groups_gone(groups))

    def job_forgotten(self, job: str, fence: Epoch) -> None:
        self._wake(self._pending.job_forgotten(job, fence))

    def workers_changed(self) -> None:
        """Tells of it after the pause, or with whatever is due before."""
        if self._told == self._news.edition:
            return  # a worker has registered again, and is the one that it was
        self._wake_in(self._news.pause_s)

    def floors_raised(self, floors: Iterable[StoreVersion]) -> None:
        """Tells of it after a pause: old files may wait, and a large batch raises its floors in several parts."""
        if self._pending.floors_raised(floors):
            self._wake_in(FLOORS_PAUSE_S * random.uniform(0.5, 1.5))  # the messages of many watchers take some time

    def _wake_in(self, pause_s: float) -> None:
        if self._timer is None and not self._due.is_set():
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._due.set)

    def _wake(self, due: bool) -> None:
        if due:
            self._due.set()

    def snapshot(self) -> pb.GroupUpdate:
        return self._message(self._pending.snapshot())

    async def next(self) -> pb.GroupUpdate:
        """Waits for changes."""
        await self._due.wait()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self._message(self._pending.take())

    def _message(self, update: Update) -> pb.GroupUpdate:
        if update.empty and self._told != self._news.edition:
            self._told = self._news.edition
            return self._news.workers()  # all streams share it: a copy for each of 1000 takes a second
        message = pb.GroupUpdate(
            snapshot=update.snapshot,
            groups=[convert.replica_group_to_pb(group) for group in update.groups],
            left=[convert.group_to_pb(group) for group in update.left],
            floors=[common_pb2.Floor(version=convert.store_version_to_pb(floor)) for floor in update.floors],
            forgotten=[
                common_pb2.ForgottenJob(job=job, fence=convert.epoch_to_pb(fence))
                for job, fence in update.forgotten.items()
            ],
        )
        if self._told == self._news.edition:
            message.workers_unchanged = True
        else:
            message.MergeFrom(self._news.workers())
            self._told = self._news.edition
        return message
