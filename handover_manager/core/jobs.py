"""All streaming queries: who drives them, their maps of desired workers, and their logged batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.core.events import (
    BatchLogged,
    Effect,
    FindWriters,
    Persist,
    PushLocations,
    QueryEnded,
    QueryIdle,
    QueryStarted,
    WritersFound,
)
from handover_manager.core.figures import figures_key
from handover_manager.core.job import Job, LoggedBatch
from handover_manager.core.records import job_key, job_to_json
from handover_manager.core.view import ClusterView
from rhino.errors import InvalidRequestError, PreconditionError, UnknownError
from rhino.ids import VirtualNode


class Jobs:
    """The table of jobs. Methods return effects, to be executed in order."""

    def __init__(self, restored: Iterable[Job] = ()) -> None:
        self._jobs = {job.job: job for job in restored}

    def __getitem__(self, job: str) -> Job:
        return self._jobs[job]

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    def find(self, name: str) -> Job:
        """By id, or by the unique query name (connected queries first).

        Raises UnknownError, and InvalidRequestError when several queries have the name.
        """
        if name in self._jobs:
            return self._jobs[name]
        named = [job for job in self._jobs.values() if name and job.name == name]
        named = [job for job in named if job.session is not None] or named
        if not named:
            raise UnknownError(f"job {name!r}: no query with this id or name has reported to this manager")
        if len(named) > 1:
            raise InvalidRequestError(f"job name {name!r} is not unique: use one of {', '.join(j.job for j in named)}")
        return named[0]

    def query_started(self, event: QueryStarted, view: ClusterView) -> list[Effect]:
        """Takes over the query for the event's session; its map is asserted to the new run or driver.

        An unplanned one is of no concern when no former run is known: its first batch tells what there is.
        """
        if event.unplanned and not (event.job in self._jobs and self._jobs[event.job].task_groups):
            return []
        job = self._jobs.setdefault(event.job, Job(event.job))
        job.run_id, job.name, job.application_id = event.run_id, event.name, event.application_id
        job.session, job.pushed = event.session, None
        if not event.unplanned and job.task_groups != event.task_groups:
            job.task_groups = event.task_groups
            job.work.clear()
        job.lost_at, job.idle_epoch = None, -1
        job.choose(view)
        return [Persist(job_key(job.job), job_to_json(job)), *self._push(job, view)]

    def query_ended(self, event: QueryEnded) -> None:
        """The end of an older run says nothing about the present one."""
        job = self._jobs.get(event.job)
        if job is not None and job.run_id == event.run_id:
            job.session = job.lost_at = None

    def session_closed(self, session: int, now: float) -> None:
        for job in self._jobs.values():
            if job.session == session:
                job.session, job.lost_at, job.idle_epoch = None, now, -1

    def check_over(self, name: str, lost_before: float) -> str:
        """The id of a job that nobody runs; a name that is not known is taken for an id.

        Raises PreconditionError while a driver runs it, or has been lost only after `lost_before`: it may come back.
        """
        try:
            job = self.find(name)
        except UnknownError:
            return name
        if job.session is not None:
            raise PreconditionError(f"job {job.job} ({job.name}) runs in {job.application_id}: stop the query first")
        if job.lost_at is not None and job.lost_at > lost_before:
            raise PreconditionError(
                f"job {job.job}: its driver {job.application_id} was lost just now and may come back: try again later"
            )
        return job.job

    def forget(self, job: str) -> list[Effect]:
        if self._jobs.pop(job, None) is None:
            return []
        return [Persist(job_key(job), None), Persist(figures_key(job), None)]

    def batch_logged(self, event: BatchLogged, now: float) -> list[Effect]:
        """Asks who wrote the batch. Queries without state, and late reports of older runs, are of no concern."""
        job = self._jobs.get(event.job)
        if job is None or job.run_id != event.run_id or not event.versions:
            return []
        if event.repeated:
            job.repeated(event.batch_id, event.versions)
        else:
            job.logged(event.batch_id, event.versions, now)
        nodes, node_of = job.nodes, job.node_of()
        job.work.note({node: told for node, told in event.work.items() if node in nodes})
        hints = tuple(
            (v, job.desired.get(node_of[v.store.operator, v.store.partition], ""))
            for v in event.versions
            if (v.store.operator, v.store.partition) in node_of
        )
        return [FindWriters(job.job, event.batch_id, hints)]

    def query_idle(self, event: QueryIdle) -> bool:
        """False: of a query that is not known, of an older run, or of a map that this manager has not made."""
        job = self._jobs.get(event.job)
        if job is None or job.run_id != event.run_id or job.session is None:
            return False
        if event.configuration_epoch > job.configuration_epoch:
            return False
        job.idle_epoch = event.configuration_epoch
        return True

    def writers_found(self, event: WritersFound) -> tuple[LoggedBatch, dict[VirtualNode, str]] | None:
        """The batch and the actual workers of its virtual nodes; None when it is no longer waited for.

        After a miss the driver is to get the map again (`push_again`): the one that it has may be old. The map itself
        stays, so that no replica moves for it; owners follow a worker that goes on writing by themselves.
        """
        job = self._jobs.get(event.job)
        batch = job.pending.pop(event.batch_id, None) if job is not None else None
        if job is None or batch is None:
            return None
        actual = job.settle(batch, event.writers)
        if job.missed & actual.keys():
            job.pushed = None
        return batch, actual

    def refresh(self, view: ClusterView) -> list[Effect]:
        """Brings every map up to date with the cluster, and drivers up to date with the maps."""
        effects: list[Effect] = []
        for job in self._jobs.values():
            if job.choose(view):
                effects.append(Persist(job_key(job.job), job_to_json(job)))
            effects += self._push(job, view)
        return effects

    def push_again(self, name: str, view: ClusterView) -> list[Effect]:
        """The map, if the driver is not known to have it."""
        job = self._jobs[name]
        return self._push(job, view) if job.pushed is None else []

    def pin(self, name: str, nodes: Mapping[VirtualNode, str], view: ClusterView) -> list[Effect]:
        """The handover marker (Rhino 4.1, step 3): a new configuration epoch in which `nodes` have these workers."""
        job = self._jobs[name]
        job.pinned.update(nodes)
        if not job.choose(view):
            job.configuration_epoch += 1
        return [Persist(job_key(name), job_to_json(job)), *self._push(job, view)]

    def unpin(self, name: str, nodes: Iterable[VirtualNode], worker: str, view: ClusterView) -> list[Effect]:
        """Ends what `pin` asserted for `worker`: the virtual nodes follow the owners of their groups again."""
        job = self._jobs[name]
        for node in nodes:
            if job.pinned.get(node) == worker:
                del job.pinned[node]
        changed = job.choose(view)
        effects: list[Effect] = [Persist(job_key(name), job_to_json(job))] if changed else []
        return effects + self._push(job, view)

    def _push(self, job: Job, view: ClusterView) -> list[Effect]:
        if job.session is None:
            return []
        state = (job.configuration_epoch, job.locations(view))
        if state == job.pushed:
            return []
        job.pushed = state
        return [PushLocations(job.session, job.job, *state)]

    def check_invariants(self) -> None:
        for job in self._jobs.values():
            assert all(job.desired.get(n) == w for n, w in job.pinned.items() if n in job.nodes), job
            assert bool(job.desired) <= (job.configuration_epoch > 0), job
