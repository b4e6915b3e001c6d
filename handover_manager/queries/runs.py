"""Decides which run of a query counts for its job, and records the reports of its driver."""

from __future__ import annotations

from handover_manager.events import (
    BatchLogged,
    CheckpointMoved,
    Effect,
    ExecutorChanged,
    FindWriters,
    NameExecutors,
    NameSettings,
    OwnerSet,
    ProbeSession,
    PublishLogged,
    QueryEnded,
    QueryIdle,
    QueryStarted,
)
from handover_manager.queries import claims
from handover_manager.queries.claims import Claims, canonical
from handover_manager.queries.executors import NOWHERE, Executors
from handover_manager.queries.job import Job
from handover_manager.queries.jobs import Jobs
from handover_manager.queries.records import persist_job
from handover_manager.queries.run import Run, Running
from handover_manager.view import ClusterView
from rhino_core.errors import InvalidRequestError, PreconditionError, UnknownError


class Runs:
    """The runs of all jobs: one driver at a time. Methods return effects, to be executed in order."""

    def __init__(self, jobs: Jobs, wall_offset_s: float) -> None:
        self._jobs = jobs
        self._offset_s = wall_offset_s
        self._claims = Claims()
        self._executors = Executors()

    def query_started(self, event: QueryStarted, view: ClusterView, now: float) -> list[Effect]:
        """Assigns the query to the event's session.

        Refuses the query if its checkpoint is elsewhere. Lets it wait if another session has the job. An unplanned
        query without a known former run is ignored: its first batch reports the task groups.
        """
        job = self._jobs.get(event.job)
        if event.unplanned and (job is None or not job.map.task_groups):
            return []
        if job is not None:
            refusal = claims.foreign(job, event) or claims.elsewhere(job, event)
            if refusal is not None:
                return [refusal]
            holder = job.run.session
            if holder is not None and holder != event.session:
                return [ProbeSession(holder)] if self._claims.add(event, now) else []
        return self._accept(event, view, now)

    def _accept(self, event: QueryStarted, view: ClusterView, now: float) -> list[Effect]:
        """Accepts the run, and sends the job's map to its driver."""
        job = self._jobs.add(event.job)
        since_ms = job.run.since_ms if job.run.run_id == event.run_id else 0
        job.run = Run(
            run_id=event.run_id,
            name=event.name,
            application_id=event.application_id,
            host=event.host,
            since_ms=since_ms or round((now + self._offset_s) * 1000),
            phase=Running(event.session, now),
            rhino_version=event.rhino_version,
        )
        job.location = canonical(event.location) or job.location
        job.owner = job.owner or event.principal
        job.temporary = event.temporary
        if not event.unplanned and job.map.task_groups != event.task_groups:
            job.take_plan(event.task_groups)
        job.map.choose(view)
        named: list[Effect] = [NameSettings(job.job, event.settings)] if event.settings else []
        return [persist_job(job), *named, *self._places_of(job), *job.push(view)]

    def query_ended(self, event: QueryEnded, view: ClusterView, now: float) -> list[Effect]:
        """Handles the end of a query. The end of an older run, or one reported by another session, is ignored."""
        self._claims.leave(event.session, event.job)
        job = self._accepted(event)
        if job is None:
            return []
        job.run.stop()
        return self._offer(job, view, now)

    def session_closed(self, session: int, view: ClusterView, now: float) -> list[Effect]:
        """Handles the end of a driver's session. Its jobs go to waiting runs."""
        self._claims.leave(session)
        self._executors.closed(session)
        effects: list[Effect] = []
        for job in self._of_session(session):
            job.run.lose(now)
            effects += self._offer(job, view, now)
        return effects

    def _offer(self, job: Job, view: ClusterView, now: float) -> list[Effect]:
        """Offers a free job to the waiting runs: the first gets it, the others wait for the first."""
        return [effect for event in self._claims.take(job.job) for effect in self.query_started(event, view, now)]

    def session_answered(self, session: int) -> list[Effect]:
        """The session's driver is alive: refuses the waiting runs of other drivers."""
        return [claims.taken(job, event) for job in self._of_session(session) for event in self._claims.take(job.job)]

    def deadlines(self) -> list[float]:
        return self._claims.deadlines()

    def expire(self, now: float) -> list[Effect]:
        """Refuses expired claims: a session still open then has a live driver."""
        due = [self._jobs[name] for name in self._claims.due(now)]
        return [claims.taken(job, event) for job in due for event in self._claims.take(job.job)]

    def executor_changed(self, event: ExecutorChanged) -> list[Effect]:
        """Records an executor, and reports changed places of the session's jobs. Copies belong beside executors."""
        if not self._executors.changed(event):
            return []
        return [effect for job in self._of_session(event.session) for effect in self._places_of(job)]

    def _places_of(self, job: Job) -> list[Effect]:
        """Reports the places of executors. Nothing while none is known: the former places are a better guess."""
        places = self._executors.places(job.run.session) if job.run.session is not None else NOWHERE
        return [NameExecutors(job.job, *places)] if places != NOWHERE else []

    def executors(self, job: Job) -> int | None:
        """Number of executors of its application. None without a driver."""
        return None if job.run.session is None else self._executors.count(job.run.session)

    def usable(self, job: Job, view: ClusterView) -> ClusterView:
        """The view without workers known to be unable to run its tasks."""
        places = self._executors.places(job.run.session) if job.run.session is not None else NOWHERE
        return places.usable(view, set(job.map.desired.values()))

    def unusable(self, job: Job, view: ClusterView) -> frozenset[str]:
        """Workers known to be unable to run its tasks."""
        return frozenset(view.workers) - frozenset(self.usable(job, view).workers)

    def batch_logged(self, event: BatchLogged, now: float) -> list[Effect]:
        """Passes on the content of the commit log, and asks for the writers of the batch.

        Ignores queries without state, late reports of older runs, and runs without acceptance, because a floor deletes
        files. Raises InvalidRequestError for versions of another job.
        """
        job = self._accepted(event)
        if job is None or not event.versions:
            return []
        for version in (*event.versions, *event.floors):
            if version.store.job != event.job:
                raise InvalidRequestError(f"a batch of job {event.job} names a version of another job: {version}")
        if event.repeated:
            job.logged.repeated(event.batch_id, event.versions)
        else:
            job.batch_logged(event.batch_id, event.versions, now)
        nodes, node_of, desired = job.map.nodes, job.map.node_of, job.map.desired
        job.work.add({node: work for node, work in event.work.items() if node in nodes})
        hints = tuple(
            (v, desired.get(node_of[v.store.operator, v.store.partition], ""))
            for v in event.versions
            if (v.store.operator, v.store.partition) in node_of
        )
        logged = PublishLogged(job.job, event.batch_id, event.versions, event.floors)
        return [logged, FindWriters(job.job, event.batch_id, hints, self._executors.places(event.session).workers)]

    def query_idle(self, event: QueryIdle) -> bool:
        """Records that the query is idle.

        Returns False for an unknown query, for a run that does not count, or for a map of another manager.
        """
        job = self._accepted(event)
        if job is None or event.configuration_epoch > job.map.configuration_epoch:
            return False
        job.run.idle_epoch = event.configuration_epoch
        return True

    def checkpoint_moved(self, event: CheckpointMoved) -> list[Effect]:
        """Sets the location of a stopped job's checkpoint.

        Raises UnknownError, PreconditionError while a driver runs the job, and InvalidRequestError.
        """
        job = self._jobs.find(event.job)
        location = canonical(event.location)
        if "/" not in location:
            raise InvalidRequestError(f"location {event.location!r}: must be absolute, such as hdfs://namenode/ckpt/q")
        _check_stopped(job)
        job.location = location
        return [persist_job(job)]

    def owner_set(self, event: OwnerSet) -> list[Effect]:
        """Sets the driver with the right to run a job. A present run is not disturbed. Raises UnknownError."""
        job = self._jobs.find(event.job)
        job.owner = event.owner
        return [persist_job(job)]

    def check_not_running(self, name: str, lost_before: float) -> str:
        """The id of a job without a driver. An unknown name counts as an id.

        Raises PreconditionError while a driver runs it, or if its driver was lost after `lost_before` and may come
        back.
        """
        try:
            job = self._jobs.find(name)
        except UnknownError:
            return name
        _check_stopped(job)
        if job.run.may_return(lost_before):
            raise PreconditionError(
                f"job {job.job}: its driver {job.run.application_id} was lost just now and may come back: "
                "try again later"
            )
        return job.job

    def running(self, lost_before: float) -> list[Job]:
        """Jobs with a driver, and jobs with a driver lost after `lost_before`, which may come back."""
        return [job for job in self._jobs.all() if job.run.session is not None or job.run.may_return(lost_before)]

    def without_checkpoint(self, lost_before: float) -> list[Job]:
        """Jobs with a temporary checkpoint that have ended, or lost their driver before `lost_before`."""
        temporary = (job for job in self._jobs.all() if job.temporary and job.run.session is None)
        return [job for job in temporary if not job.run.may_return(lost_before)]

    def keep_state(self, job: str) -> list[Effect]:
        """An operator wants the state of the job, whatever becomes of its checkpoint."""
        known = self._jobs.get(job)
        if known is None or not known.temporary:
            return []
        known.temporary = False
        return [persist_job(known)]

    def forget(self, job: str) -> list[Effect]:
        """Drops the job and its waiting runs."""
        self._claims.take(job)
        return self._jobs.forget(job)

    def _of_session(self, session: int) -> list[Job]:
        return [job for job in self._jobs.all() if job.run.session == session]

    def _accepted(self, event: QueryEnded | BatchLogged | QueryIdle) -> Job | None:
        """The job, if the event belongs to its accepted run and comes from its session."""
        job = self._jobs.get(event.job)
        known = job is not None and (job.run.session, job.run.run_id) == (event.session, event.run_id)
        return job if known else None


def _check_stopped(job: Job) -> None:
    if job.run.session is not None:
        raise PreconditionError(
            f"job {job.job} ({job.run.name}) runs in {job.run.application_id}: stop the query first"
        )
