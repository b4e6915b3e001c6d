"""All streaming queries: their drivers, their maps of desired workers, and their logged batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.events import (
    BatchLogged,
    CheckpointMoved,
    Effect,
    ExecutorChanged,
    FindWriters,
    NameExecutors,
    NameSettings,
    Persist,
    ProbeSession,
    PublishLogged,
    PushLocations,
    QueryEnded,
    QueryIdle,
    QueryStarted,
    WritersFound,
)
from handover_manager.plan.measurements import figures_key
from handover_manager.queries import claims
from handover_manager.queries.checkpoint import canonical
from handover_manager.queries.claims import Claims
from handover_manager.queries.executors import NOWHERE, Executors
from handover_manager.queries.job import Job, LoggedBatch
from handover_manager.queries.records import job_key, record_of_job
from handover_manager.view import ClusterView
from rhino_core.errors import InvalidRequestError, PreconditionError, UnknownError
from rhino_core.ids import VirtualNode


class Jobs:
    """The table of jobs. Methods return effects, to be executed in order.

    `wall_offset_s` is wall clock minus monotonic time, for the times shown to people.
    """

    def __init__(self, wall_offset_s: float, restored: Iterable[Job] = ()) -> None:
        self._offset_s = wall_offset_s
        self._jobs = {job.job: job for job in restored}
        self._claims = Claims()
        self._executors = Executors()

    def __getitem__(self, job: str) -> Job:
        return self._jobs[job]

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    def find(self, name: str) -> Job:
        """Finds a job by its id or its unique query name. Connected queries come first.

        Raises UnknownError, and InvalidRequestError if several queries have the name.
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

    def query_started(self, event: QueryStarted, view: ClusterView, now: float) -> list[Effect]:
        """Assigns the query to the event's session.

        Refuses the query if its checkpoint is elsewhere. Lets it wait if another session has the job. An unplanned
        query without a known former run is ignored: its first batch reports the task groups.
        """
        job = self._jobs.get(event.job)
        if event.unplanned and (job is None or not job.task_groups):
            return []
        if job is not None:
            refusal = claims.elsewhere(job, event)
            if refusal is not None:
                return [refusal]
            if job.session is not None and job.session != event.session:
                return [ProbeSession(job.session)] if self._claims.add(event, now) else []
        return self._accept(event, view, now)

    def _accept(self, event: QueryStarted, view: ClusterView, now: float) -> list[Effect]:
        """Accepts the run, and sends the job's map to its driver."""
        job = self._jobs.setdefault(event.job, Job(event.job))
        if job.run_id != event.run_id or not job.since_ms:
            job.since_ms = round((now + self._offset_s) * 1000)
        job.run_id, job.name, job.application_id = event.run_id, event.name, event.application_id
        job.host, job.location = event.host, canonical(event.location) or job.location
        job.session, job.pushed = event.session, None
        if not event.unplanned and job.task_groups != event.task_groups:
            job.take_plan(event.task_groups)
        job.lost_at, job.idle_epoch = None, None
        job.choose(view)
        named: list[Effect] = [NameSettings(job.job, event.settings)] if event.settings else []
        named += self._places_of(job)
        return [Persist(job_key(job.job), record_of_job(job)), *named, *self._push(job, view)]

    def executor_changed(self, event: ExecutorChanged) -> list[Effect]:
        """Records an executor, and reports changed places of the session's jobs. Copies belong where tasks can run."""
        changed = self._executors.changed(event)
        mine = [job for job in self._jobs.values() if changed and job.session == event.session]
        return [effect for job in mine for effect in self._places_of(job)]

    def _places_of(self, job: Job) -> list[Effect]:
        """Reports where executors are. Nothing while none is known: the former ones are a better guess until then."""
        places = self._executors.places(job.session) if job.session is not None else NOWHERE
        return [NameExecutors(job.job, *places)] if places != NOWHERE else []

    def query_ended(self, event: QueryEnded, view: ClusterView, now: float) -> list[Effect]:
        """Handles the end of a query. The end of an older run, or one reported by another session, is ignored."""
        self._claims.leave(event.session, event.job)
        job = self._running(event)
        if job is None:
            return []
        job.session = job.lost_at = None
        return self._settle_claims(job, view, now)

    def session_closed(self, session: int, view: ClusterView, now: float) -> list[Effect]:
        self._claims.leave(session)
        self._executors.closed(session)
        effects: list[Effect] = []
        for job in self._jobs.values():
            if job.session == session:
                job.session, job.lost_at, job.idle_epoch = None, now, None
                effects += self._settle_claims(job, view, now)
        return effects

    def session_answered(self, session: int) -> list[Effect]:
        """The session's driver is alive: refuses the runs of other drivers that wait for its jobs."""
        held = [job for job in self._jobs.values() if job.session == session]
        return [claims.taken(job, event) for job in held for event in self._claims.take(job.job)]

    def deadlines(self) -> list[float]:
        return self._claims.deadlines()

    def expire(self, now: float) -> list[Effect]:
        """Refuses claims whose time is up: a session that is still open then has a driver that is alive."""
        due = [self._jobs[name] for name in self._claims.due(now)]
        return [claims.taken(job, event) for job in due for event in self._claims.take(job.job)]

    def _settle_claims(self, job: Job, view: ClusterView, now: float) -> list[Effect]:
        """Offers a free job to the waiting runs: the first gets it, the others wait for that one."""
        effects: list[Effect] = []
        for event in self._claims.take(job.job):
            effects += self.query_started(event, view, now)
        return effects

    def _running(self, event: QueryEnded | BatchLogged | QueryIdle) -> Job | None:
        """The job, if the event belongs to its present run and comes from the session that has it."""
        job = self._jobs.get(event.job)
        known = job is not None and (job.session, job.run_id) == (event.session, event.run_id)
        return job if known else None

    def checkpoint_moved(self, event: CheckpointMoved) -> list[Effect]:
        """Sets the location of a stopped job's checkpoint.

        Raises UnknownError, PreconditionError while a driver runs the job, and InvalidRequestError.
        """
        job = self.find(event.job)
        location = canonical(event.location)
        if "/" not in location:
            raise InvalidRequestError(f"location {event.location!r}: must be absolute, such as hdfs://namenode/ckpt/q")
        self._check_stopped(job)
        job.location = location
        return [Persist(job_key(job.job), record_of_job(job))]

    def _check_stopped(self, job: Job) -> None:
        if job.session is not None:
            raise PreconditionError(f"job {job.job} ({job.name}) runs in {job.application_id}: stop the query first")

    def running(self, lost_before: float) -> list[Job]:
        """Jobs that a driver runs, and jobs whose driver was lost after `lost_before` and may come back."""
        return [
            job
            for job in self._jobs.values()
            if job.session is not None or (job.lost_at is not None and job.lost_at > lost_before)
        ]

    def check_over(self, name: str, lost_before: float) -> str:
        """The id of a job that no driver runs. An unknown name counts as an id.

        Raises PreconditionError while a driver runs it, or if its driver was lost after `lost_before` and may come
        back.
        """
        try:
            job = self.find(name)
        except UnknownError:
            return name
        self._check_stopped(job)
        if job.lost_at is not None and job.lost_at > lost_before:
            raise PreconditionError(
                f"job {job.job}: its driver {job.application_id} was lost just now and may come back: try again later"
            )
        return job.job

    def forget(self, job: str) -> list[Effect]:
        self._claims.take(job)
        if self._jobs.pop(job, None) is None:
            return []
        return [Persist(job_key(job), None), Persist(figures_key(job), None)]

    def batch_logged(self, event: BatchLogged, now: float) -> list[Effect]:
        """Passes on the content of the commit log, and asks who wrote the batch.

        Ignores queries without state, late reports of older runs, and runs that were not accepted, because a floor
        deletes files. Raises InvalidRequestError for versions of another job.
        """
        job = self._running(event)
        if job is None or not event.versions:
            return []
        for version in (*event.versions, *event.floors):
            if version.store.job != event.job:
                raise InvalidRequestError(f"a batch of job {event.job} names a version of another job: {version}")
        if event.repeated:
            job.repeated(event.batch_id, event.versions)
        else:
            job.logged(event.batch_id, event.versions, now)
        nodes, node_of = job.nodes, job.node_of()
        job.work.add({node: work for node, work in event.work.items() if node in nodes})
        hints = tuple(
            (v, job.desired.get(node_of[v.store.operator, v.store.partition], ""))
            for v in event.versions
            if (v.store.operator, v.store.partition) in node_of
        )
        logged = PublishLogged(job.job, event.batch_id, event.versions, event.floors)
        return [logged, FindWriters(job.job, event.batch_id, hints)]

    def query_idle(self, event: QueryIdle) -> bool:
        """Records that the query is idle.

        Returns False for an unknown query, for a run that does not count, or for a map that this manager has not made.
        """
        job = self._running(event)
        if job is None:
            return False
        if event.configuration_epoch > job.configuration_epoch:
            return False
        job.idle_epoch = event.configuration_epoch
        return True

    def writers_found(self, event: WritersFound) -> tuple[LoggedBatch, dict[VirtualNode, str]] | None:
        """The batch and the actual workers of its virtual nodes. None if the batch is no longer expected.

        After a miss the driver gets the map again (`push_again`), because its own may be old. The map itself stays, so
        that no replica moves because of a miss. Ownership follows a worker that keeps writing anyway.
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
        """Updates every map from the cluster, and sends changed maps to the drivers.

        A map is computed again only if its groups or the workers have changed: it may have 100 000 virtual nodes.
        """
        effects: list[Effect] = []
        standing = view.standing()
        for job in self._jobs.values():
            seen = None if view.revisions is None else (view.revisions.get(job.job, 0), standing)
            if seen is not None and seen == job.seen:
                continue
            job.seen = seen
            if job.choose(view):
                effects.append(Persist(job_key(job.job), record_of_job(job)))
            effects += self._push(job, view)
        return effects

    def push_again(self, name: str, view: ClusterView) -> list[Effect]:
        """Sends the map unless the driver is known to have it."""
        job = self._jobs[name]
        return self._push(job, view) if job.pushed is None else []

    def pin(self, name: str, nodes: Mapping[VirtualNode, str], view: ClusterView) -> list[Effect]:
        """Sets a handover marker (Rhino 4.1, step 3): a new configuration epoch in which `nodes` have these workers."""
        job = self._jobs[name]
        job.pinned.update(nodes)
        if not job.choose(view):
            job.configuration_epoch += 1
        return [Persist(job_key(name), record_of_job(job)), *self._push(job, view)]

    def unpin(self, name: str, nodes: Iterable[VirtualNode], worker: str, view: ClusterView) -> list[Effect]:
        """Ends the effect of `pin` for `worker`: the virtual nodes follow the owners of their groups again."""
        job = self._jobs[name]
        for node in nodes:
            if job.pinned.get(node) == worker:
                del job.pinned[node]
        changed = job.choose(view)
        effects: list[Effect] = [Persist(job_key(name), record_of_job(job))] if changed else []
        return effects + self._push(job, view)

    def _push(self, job: Job, view: ClusterView) -> list[Effect]:
        if job.session is None:
            return []
        epoch, made = state = (job.configuration_epoch, job.locations(view))
        if state == job.pushed:
            return []
        job.pushed = state
        return [PushLocations(job.session, job.job, epoch, made.locations, made.hosts)]

    def check_invariants(self) -> None:
        for job in self._jobs.values():
            assert all(job.desired.get(n) == w for n, w in job.pinned.items() if n in job.nodes), job
            assert bool(job.desired) <= (job.configuration_epoch > 0), job
