"""Removal of ended jobs and of workers lost for good (design: Forgetting)."""

from __future__ import annotations

from replication_manager.protocol import events as ev
from replication_manager.protocol.changes.chains import Chains
from replication_manager.protocol.changes.following import Following
from replication_manager.protocol.changes.resettling import Resettling
from replication_manager.protocol.groups.returned import Returned
from replication_manager.protocol.placement.impaired import Impaired
from replication_manager.protocol.placement.placing import Placing
from replication_manager.protocol.workers.bootstrap import Bootstrap
from replication_manager.protocol.workers.membership import Membership
from rhino_core.errors import PreconditionError, UnknownError
from rhino_core.ids import GroupId


class Forgetting:
    """Removes a job or a worker from the manager's memory."""

    def __init__(
        self,
        membership: Membership,
        chains: Chains,
        placing: Placing,
        impaired: Impaired,
        bootstrap: Bootstrap,
        returned: Returned,
        following: Following,
        resettling: Resettling,
    ) -> None:
        self._membership = membership
        self._chains = chains
        self._placing = placing
        self._impaired = impaired
        self._bootstrap = bootstrap
        self._returned = returned
        self._following = following
        self._resettling = resettling

    def job(self, job: str) -> list[ev.Effect]:
        """Forgets a job. The fence lies above every epoch of its groups, so a late writer cannot revive them."""
        records, fences = self._membership.records.values(), self._chains.fences
        groups = tuple(sorted(group.group for group in self._chains.of_job(job)))
        reported = any(r.group.job == job and r.stored_files for record in records for r in record.reports.values())
        if job in fences and not groups:
            return [ev.PublishForgotten(job, fences[job])]
        if not groups and not reported:
            raise UnknownError(f"job {job!r}: no worker stores anything of it")
        fences[job] = fence = self._chains.epochs.next()
        self._chains.forget_settings(job)
        self._placing.forget_job(job)
        self._returned.forget_job(job)
        self._membership.forget_job(job)
        return [ev.PersistForgotten(job, fence), self._drop(groups), ev.PublishForgotten(job, fence)]

    def worker(self, worker_id: str) -> list[ev.Effect]:
        """Removes a worker from its groups. A group without other members ends, and may be created again."""
        record = self._membership.records.get(worker_id)
        if record is None:
            raise UnknownError(f"worker {worker_id!r} is not known")
        if not record.ended:
            raise PreconditionError(f"worker {worker_id!r} is {record.state.value}: stop its sidecar first")
        self._membership.forget(worker_id)
        self._bootstrap.give_up(worker_id)
        self._returned.forget_worker(worker_id)
        self._impaired.forget(worker_id)
        effects: list[ev.Effect] = [ev.DropWorker(worker_id)]
        if self._membership.set_draining(worker_id, False):
            effects.append(ev.PersistDraining(worker_id, False))
        ended: list[GroupId] = []
        for group in self._chains.of_worker(worker_id):
            others = tuple(m for m in group.members if m.worker.worker_id != worker_id)
            if not others:
                ended.append(group.group)
            elif others != group.members:
                effects += self._chains.repair(group, others)
        return [*effects, self._drop(tuple(sorted(ended))), ev.PublishWorkers()]

    def _drop(self, groups: tuple[GroupId, ...]) -> ev.DropGroups:
        for group in groups:
            self._chains.drop(group)
            self._resettling.forget(group)
        return ev.DropGroups(groups, self._following.forget(groups))
