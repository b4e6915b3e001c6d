"""The table of streaming queries, and their maps of desired workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.events import Effect, Persist, WritersFound
from handover_manager.plan.measurements import measurements_key
from handover_manager.queries.desired_map import DesiredMap
from handover_manager.queries.job import Job
from handover_manager.queries.logged import LoggedBatch
from handover_manager.queries.records import job_key, persist_job
from handover_manager.queries.run import Running
from handover_manager.view import ClusterView, Standing
from rhino_core.errors import InvalidRequestError, UnknownError
from rhino_core.ids import VirtualNode
from rhino_core.text import query_handle

NODES_OF_A_VIEW = 1000  # virtual nodes whose maps are made in one view; of a larger map all of them


class Jobs:
    """The jobs by id. Methods return effects, to be executed in order."""

    def __init__(self, restored: Iterable[Job] = ()) -> None:
        self._jobs = {job.job: job for job in restored}
        self._due: dict[str, None] = {}  # jobs whose maps have to be made again, in this order
        self.standing: Standing = frozenset()  # of the newest `refresh`; the same object while it is equal

    def __getitem__(self, job: str) -> Job:
        return self._jobs[job]

    def get(self, job: str) -> Job | None:
        return self._jobs.get(job)

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    def find(self, name: str) -> Job:
        """Finds a job by its id, its unique query name or its handle. Connected queries come first.

        Raises UnknownError, and InvalidRequestError if several queries have the name.
        """
        if name in self._jobs:
            return self._jobs[name]
        called = ((job, job.run.name) for job in self._jobs.values() if job.run.name)
        named = [job for job, given in called if name in (given, query_handle(given, job.job))]
        named = [job for job in named if job.run.session is not None] or named
        if not named:
            raise UnknownError(f"job {name!r}: no query with this id or name has reported to this manager")
        if len(named) > 1:
            handles = ", ".join(query_handle(job.run.name, job.job) for job in named)
            raise InvalidRequestError(f"job name {name!r} is not unique: use one of {handles}")
        return named[0]

    def name_of(self, job: str) -> str:
        """A name for people that `find` takes: the query's name, its handle if the name is not unique, or the id."""
        name = self._jobs[job].run.name if job in self._jobs else ""
        if not name:
            return job
        unique = sum(other.run.name == name for other in self._jobs.values()) == 1
        return name if unique else query_handle(name, job)

    def add(self, job: str) -> Job:
        """The job, made if it is unknown."""
        return self._jobs.setdefault(job, Job(job, DesiredMap(job)))

    def forget(self, job: str) -> list[Effect]:
        """Drops the job from memory and from the journal."""
        self._due.pop(job, None)
        if self._jobs.pop(job, None) is None:
            return []
        return [Persist(job_key(job), None), Persist(measurements_key(job), None)]

    def writers_found(self, event: WritersFound) -> tuple[LoggedBatch, dict[VirtualNode, str]] | None:
        """The batch and the actual workers of its virtual nodes. None if the batch is no longer expected.

        After a miss the driver gets the map again (`Job.push_again`), because its own may be old. The map itself stays,
        so no replica moves because of a miss. Ownership follows a steady writer anyway.
        """
        job = self._jobs.get(event.job)
        batch = job.logged.pending.pop(event.batch_id, None) if job is not None else None
        if job is None or batch is None:
            return None
        actual = job.settle(batch, event.writers)
        if job.logged.missed & actual.keys() and isinstance(job.run.phase, Running):
            job.run.phase.sent = None
        return batch, actual

    def refresh(self, view: ClusterView) -> list[Effect]:
        """Updates maps from the cluster, and sends changed maps to the drivers.

        A map is made again only if its groups have changed, or one of its workers: it may have 100 000 virtual nodes,
        and there may be many maps. If many are due at once, as after a start or the loss of many workers, the next
        views make the others (`behind`), so each view takes a bounded time.
        """
        self._find_due(view)
        effects: list[Effect] = []
        nodes = 0
        while self._due and (nodes < NODES_OF_A_VIEW or view.revisions is None):
            job = self._jobs[next(iter(self._due))]
            del self._due[job.job]
            job.map.made_from = _revision(view, job)
            if job.map.choose(view):
                effects.append(persist_job(job))
            effects += job.push(view)
            nodes += len(job.map.nodes)
        return effects

    @property
    def behind(self) -> bool:
        """Whether some maps are not made yet from the newest view."""
        return bool(self._due)

    def _find_due(self, view: ClusterView) -> None:
        standing = view.standing()
        changed = {name for name, *_ in standing ^ self.standing}
        self.standing = standing if changed else self.standing
        for job in self._jobs.values():
            revision = _revision(view, job)
            if revision is None or revision != job.map.made_from or not job.map.concerns.isdisjoint(changed):
                self._due[job.job] = None

    def pin(self, name: str, workers: Mapping[VirtualNode, str], view: ClusterView) -> list[Effect]:
        """Sets a handover marker (Rhino 4.1, step 3): a configuration epoch with new workers for virtual nodes."""
        job = self._jobs[name]
        job.map.pin(workers, view)
        return [persist_job(job), *job.push(view)]

    def unpin(self, name: str, nodes: Iterable[VirtualNode], worker: str, view: ClusterView) -> list[Effect]:
        """Ends the effect of `pin` for `worker`: the virtual nodes follow the owners of their groups again."""
        job = self._jobs[name]
        changed = job.map.unpin(nodes, worker, view)
        return [*([persist_job(job)] if changed else []), *job.push(view)]

    def check_invariants(self) -> None:
        for job in self._jobs.values():
            job.map.check_invariants()


def _revision(view: ClusterView, job: Job) -> int | None:
    """The revision of the job's groups. None: unknown."""
    return None if view.revisions is None else view.revisions.get(job.job, 0)
