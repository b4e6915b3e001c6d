"""Jobs that have ended for good (ARCHITECTURE.md, "Forgetting")."""

from __future__ import annotations

from rhino.errors import PreconditionError
from rhino.ids import NO_EPOCH, StoreId
from worker_runtime.core import events as ev
from worker_runtime.core.chain_state import ChainState


class Forgetting(ChainState):
    """The part of the chain machine that ends what is under way of a forgotten job."""

    def _forget(self, event: ev.JobForgotten, now: float) -> list[ev.Effect]:
        """The fence refuses whoever still sends; what is under way of the job ends. Again: only strays are deleted."""
        known = self._fences.get(event.job, NO_EPOCH)
        self._fences[event.job] = max(event.fence, known)
        drop, *refused = self._drop_job(event.job)
        again = event.fence <= known and isinstance(drop, ev.DropJob) and not drop.groups
        return [] if again else [drop, *refused]

    def _drop_job(self, job: str) -> list[ev.Effect]:
        known = {*self._groups, *self._epochs, *self._catalogue.groups(), *(key.store.group for key in self._groupless)}
        gone = tuple(sorted(group for group in known if group.job == job and self.forgotten(group)))
        refused: list[ev.Effect] = []
        for group in gone:
            self._groups.pop(group, None)
            self._epochs.pop(group, None)
            for commit_key in self._commits.of_group(group):
                refused += [self._refuse_commit(c.request, commit_key.store) for c in self._commits.pop(commit_key)]
            for key in self._outbox.of_group(group):
                refused += self._outbox.drop(key)
            self._upstreams.forget_group(group)
            self._unheld = {store: names for store, names in self._unheld.items() if store.group != group}
            self._groupless = {k: entry for k, entry in self._groupless.items() if k.store.group != group}
        self._groups_moved = True
        return [ev.DropJob(job, self._fences[job], gone), *refused]

    def _refuse_commit(self, request: int, store: StoreId) -> ev.CompleteCommit:
        error = PreconditionError(f"{store}: the job was forgotten; start the query with a new checkpoint")
        return ev.CompleteCommit(request, 0, self._fences[store.job], error)
