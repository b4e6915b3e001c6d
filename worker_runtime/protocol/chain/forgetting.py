"""Handles the final end of jobs (ARCHITECTURE.md, "Forgetting")."""

from __future__ import annotations

from rhino_core.errors import PreconditionError
from rhino_core.ids import Epoch, GroupId, StoreId
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.commits import Commits
from worker_runtime.protocol.chain.groups import Groups
from worker_runtime.protocol.chain.receiving import Receiving
from worker_runtime.protocol.chain.sending import Sending
from worker_runtime.protocol.versions.closure import Catalogue


class Forgetting:
    """Ends everything under way of a forgotten job."""

    def __init__(
        self, catalogue: Catalogue, groups: Groups, commits: Commits, receiving: Receiving, sending: Sending
    ) -> None:
        self._catalogue = catalogue
        self._groups = groups
        self._commits = commits
        self._receiving = receiving
        self._sending = sending

    def forget(self, job: str, fence: Epoch) -> list[ev.Effect]:
        """Records the fence, which refuses later senders, and end everything under way of the job.

        A repeated report only deletes stray files.
        """
        repeated = fence <= self._groups.fence(job)
        self._groups.raise_fence(job, fence)
        gone = self._forgotten_groups(job)
        effects = self._drop(job, gone)
        return [] if repeated and not gone else effects

    def drop(self, job: str) -> list[ev.Effect]:
        """A file of a forgotten job arrived: delete it, with everything else of the job."""
        return self._drop(job, self._forgotten_groups(job))

    def refuse_commit(self, request: int, store: StoreId) -> ev.CompleteCommit:
        error = PreconditionError(f"{store}: the job was forgotten; start the query with a new checkpoint")
        return ev.CompleteCommit(request, 0, self._groups.fence(store.job), error)

    def _forgotten_groups(self, job: str) -> tuple[GroupId, ...]:
        known = {*self._groups.known(), *self._catalogue.groups(), *self._sending.groups_asked_for()}
        return tuple(sorted(group for group in known if group.job == job and self._groups.forgotten(group)))

    def _drop(self, job: str, gone: tuple[GroupId, ...]) -> list[ev.Effect]:
        effects: list[ev.Effect] = [ev.DropJob(job, self._groups.fence(job), gone)]
        for group in gone:
            self._groups.forget(group)
            for key in self._commits.of_group(group):
                effects += [self.refuse_commit(commit.request, key.store) for commit in self._commits.pop(key)]
            effects += self._sending.forget_group(group)
            self._receiving.forget_group(group)
        return effects + self._receiving.forget_job(job)
