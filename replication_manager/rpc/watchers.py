"""Who must hear of which group: one mailbox for each WatchGroups stream, in which news of the same group coalesce."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from replication_manager.core.machine import ReplicationMachine
from replication_manager.rpc.messages import floors_to_pb
from rhino.ids import Epoch, GroupId, ReplicaGroup, StoreVersion
from rhino.rpc import convert
from rhino_pb import common_pb2
from rhino_pb import replication_pb2 as pb


class Watcher:
    """News for one worker. `interested`: groups that it has resolved without being a member.

    Also of groups of which it stores files, so that it can ask their members whether it may delete them.
    """

    def __init__(self, core: ReplicationMachine, worker_id: str, interested: set[GroupId]) -> None:
        self._core = core
        self._worker_id = worker_id
        self._interested = interested
        self._told: set[GroupId] = set()
        self._groups: set[GroupId] = set()
        self._floors: dict[object, StoreVersion] = {}
        self._forgotten: dict[str, Epoch] = {}
        self._news = asyncio.Event()

    def concerns(self, group: ReplicaGroup) -> bool:
        return group.group in self._interested or group.member(self._worker_id) is not None or self._stores(group.group)

    def _stores(self, group: GroupId) -> bool:
        record = self._core.membership.records.get(self._worker_id)
        report = record.reports.get(group) if record is not None else None
        return report is not None and report.stored_files > 0

    def reported(self, worker_id: str, groups: Iterable[GroupId]) -> None:
        """A worker has said what it stores of these groups."""
        if worker_id != self._worker_id:
            return
        new = (group for group in groups if group not in self._told and group in self._core.groups)
        if untold := {group for group in new if self._stores(group)}:
            self._groups.update(untold)
            self._news.set()

    def group_changed(self, group: ReplicaGroup) -> None:
        if self.concerns(group) or group.group in self._told:
            self._groups.add(group.group)
            self._news.set()

    def groups_gone(self, groups: tuple[GroupId, ...]) -> None:
        mine = [group for group in groups if group in self._told or group in self._interested]
        self._groups.update(mine)
        if mine:
            self._news.set()

    def job_forgotten(self, job: str, fence: Epoch) -> None:
        self._forgotten[job] = fence
        self._news.set()

    def workers_changed(self) -> None:
        self._news.set()

    def floors_raised(self, floors: tuple[StoreVersion, ...]) -> None:
        mine = [f for f in floors if f.store.group in self._told or f.store.group in self._interested]
        self._floors.update({floor.store: floor for floor in mine})
        if mine:
            self._news.set()

    def snapshot(self) -> pb.GroupUpdate:
        groups = [group for group in self._core.groups.values() if self.concerns(group)]
        self._told = {group.group for group in groups}
        floors = [StoreVersion(s, v) for s, v in self._core.floors.items() if s.group in self._told]
        return self._update(groups, [], floors, self._core.forgotten, snapshot=True)

    async def next(self) -> pb.GroupUpdate:
        """Waits for news; everything that has changed since the last message."""
        await self._news.wait()
        self._news.clear()
        changed = [self._core.groups[group] for group in sorted(self._groups) if group in self._core.groups]
        mine = [group for group in changed if self.concerns(group)]
        joined = {group.group for group in mine} - self._told
        for store, version in self._core.floors.items() if joined else ():
            if store.group in joined:
                self._floors[store] = StoreVersion(store, version)
        floors = list(self._floors.values())
        left = [group.group for group in changed if not self.concerns(group)]
        left += sorted(group for group in self._groups if group not in self._core.groups)
        forgotten = self._forgotten
        self._groups, self._floors, self._forgotten = set(), {}, {}
        self._told = (self._told | {group.group for group in mine}) - set(left)
        return self._update(mine, left, floors, forgotten, snapshot=False)

    def _update(
        self,
        groups: list[ReplicaGroup],
        left: list[GroupId],
        floors: list[StoreVersion],
        forgotten: Mapping[str, Epoch],
        *,
        snapshot: bool,
    ) -> pb.GroupUpdate:
        records = self._core.membership.records.values()
        return pb.GroupUpdate(
            snapshot=snapshot,
            groups=[convert.replica_group_to_pb(group) for group in groups],
            left=[convert.group_to_pb(group) for group in left],
            workers=[convert.worker_to_pb(r.worker) for r in records if r.present],
            floors=floors_to_pb(floors),
            absent=[convert.worker_to_pb(r.worker) for r in records if not r.present],
            forgotten=[
                common_pb2.ForgottenJob(job=job, fence=convert.epoch_to_pb(fence)) for job, fence in forgotten.items()
            ],
        )
