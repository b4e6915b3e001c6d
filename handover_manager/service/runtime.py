"""Runs the core on asyncio: feeds it views of the cluster, and executes its effects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, assert_never

from handover_manager import events as ev
from handover_manager.adapt.policy import Policy
from handover_manager.archive.archiver import Archiver
from handover_manager.archive.events import ArchiveWanted, BatchKnown, CheckpointRead, JobGone
from handover_manager.drive.handover import DrivenHandover
from handover_manager.machine import USUAL
from handover_manager.service import stored
from handover_manager.service.cluster import Cluster
from handover_manager.service.loads import Loads
from handover_manager.service.publishing import Publishing
from handover_manager.service.session import Session, Sessions
from handover_manager.service.views import Views
from handover_manager.service.watchers import Watchers
from handover_manager.service.writers import WriterFinder
from rhino_archive.manifest import CheckpointFile
from rhino_core.errors import AlreadyThereError, PreconditionError, RhinoError, UnavailableError, UnknownError
from rhino_core.failpoints import hit
from rhino_core.journal import Journal
from rhino_core.runner import Runner
from rhino_core.turns import Turns
from rhino_model.archives import NO_ARCHIVE, Archive
from rhino_model.handovers import DrainView, Plan
from rhino_model.intents import Drain, Request
from rhino_pb import common_pb2
from rhino_pb import handover_pb2 as pb

log = logging.getLogger(__name__)
CHECKS_MAX = 16  # batches whose writers are looked up at the same time


class Runtime:
    """The core, its runner and its ports: journal, replication manager, driver sessions and watchers.

    The core gets a fresh view of the cluster soon after the replication manager or an event has changed something, and
    at its deadlines. Calls to other processes run as tasks, and their results come back as events.
    """

    def __init__(
        self,
        journal: Journal,
        cluster: Cluster,
        finder: WriterFinder,
        forget_grace_s: float,
        policy: Policy = USUAL,
        turns: Turns | None = None,
        archiver: Archiver | None = None,
    ) -> None:
        """`forget_grace_s`: the time a forgotten job's state stays. `policy`: of adaptation.

        `turns`: for long work.
        """
        self._journal = journal
        self._cluster = cluster
        self._finder = finder
        self._loop = asyncio.get_running_loop()
        self.core = stored.open_core(journal, self._loop.time(), policy, forget_grace_s)
        self._runner: Runner[ev.Event, ev.Effect] = Runner(self.core, self, self._view)
        self._views = Views(lambda: self._runner.post(self._view()))
        self._change = asyncio.Event()  # set and replaced at each change of the cluster
        self._tasks = asyncio.TaskGroup()
        self._sessions = Sessions()
        self._watchers = Watchers()
        self.loads = Loads()
        self._listeners: list[Callable[[DrivenHandover], None]] = []
        self._checks = asyncio.Semaphore(CHECKS_MAX)
        self.archiver = archiver
        if archiver is not None:
            archiver.ask_driver(self._ask_driver)
        self._publishing = Publishing(self._publish_logged, turns or Turns())
        cluster.subscribe(self._changed)

    def subscribe(self, listener: Callable[[DrivenHandover], None]) -> None:
        """Calls `listener` whenever a handover has changed."""
        self._listeners.append(listener)

    @property
    def generation(self) -> int:
        return self._journal.generation

    async def run(self) -> None:
        """Runs until cancelled. An error of the core or of the journal ends it: the process must then end too."""
        try:
            async with self._tasks:
                self._runner.post(ev.Restarted())
                self._cluster.name_targets(self.core.handovers.targets())
                self._views.soon()
                self._spawn(self._publishing.run())
                if self.archiver is not None:
                    self._spawn(self.archiver.run())
                await self._runner.run()
        finally:
            self._views.cancel()
            await self._finder.close()

    def apply(self, event: ev.Event) -> None:
        """Feeds the core. Raises the core's refusals, and UnavailableError unless `run` is active."""
        self._runner.handle(event)
        self._views.soon()

    def batch_logged(self, event: ev.BatchLogged) -> None:
        """Feeds the core a driver's batch. If the core accepts it, the callers of WatchLoad hear of it."""
        self.apply(event)
        job = self.core.jobs.get(event.job)
        accepted = job is not None and (job.run.run_id, job.logged.newest_id) == (event.run_id, event.batch_id)
        if job is not None and accepted and not event.repeated:
            self.loads.announce(event, job, self.core.view)

    def refresh_view(self) -> None:
        """Feeds the core a fresh view of the cluster."""
        self._runner.handle(self._view())

    async def change(self) -> None:
        """Waits for the next change of the cluster."""
        await self._change.wait()

    def _view(self) -> ev.ClusterSeen:
        view = self._cluster.view(asked_at=self._loop.time())
        self._sessions.lost(name for name in view.workers if not view.reachable(name))
        if self.archiver is not None:
            self.archiver.seen(view)
        return ev.ClusterSeen(view)

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
        if self._runner.open:
            self._views.soon()

    # ---------------------------------------------------------------- requests

    def archive_now(self, name: str) -> None:
        """Archives the newest logged batch of a query, or of all (""), without waiting for its time.

        Raises PreconditionError without an archive, and for a batch of a former process of the manager. Raises
        UnavailableError if the archive has stopped, and UnknownError.
        """
        if self.archiver is None:
            raise PreconditionError("this cluster has no archive: start the manager with --archive")
        if self.archiver.failure:
            raise UnavailableError(f"the archive has stopped: {self.archiver.failure}; start the manager again")
        known = self.archiver.machine.queries
        wanted = [self.core.jobs.find(name).job] if name else list(known)
        for job in wanted:
            if job not in known:
                raise PreconditionError(f"query {job}: has logged no batch since the manager started")
            self.archiver.post(ArchiveWanted(job))

    def checkpoint_read(self, answer: pb.CheckpointRead, session: int) -> None:
        """A driver's answer. It counts only from the driver that runs the query."""
        job = self.core.jobs.get(answer.job)
        if self.archiver is not None and job is not None and job.run.session == session:
            files = tuple(CheckpointFile(file.path, file.data) for file in answer.files)
            self.archiver.post(CheckpointRead(answer.job, answer.batch_id, files, answer.error))

    def archive_status(self) -> Archive:
        names = {job.job: job.run.name for job in self.core.jobs.all()}
        return NO_ARCHIVE if self.archiver is None else self.archiver.status(names)

    def plan(self, request: Request) -> Plan:
        """Plans on a fresh view; changes nothing."""
        self.refresh_view()
        return self.core.plan(request, now=self._loop.time())

    def start(self, handover_id: str, request: Request, by: str) -> DrivenHandover:
        """Plans on a fresh view, and starts the handover. `by`: the requester; empty: not known."""
        self.refresh_view()
        self.apply(ev.HandoverRequested(handover_id, request, by))
        return self.core.handovers.find(handover_id)

    def drain(self, handover_id: str, request: Request, drain: Drain, by: str, notice_s: float = 0.0) -> None:
        """Marks the worker, so that nothing new is placed there. One handover of all jobs then moves the rest off.

        A refusal comes before the mark. With a notice (seconds) the mark comes first, because the worker leaves anyway.
        """
        self.refresh_view()
        if not notice_s:
            self.core.check_drain(request, drain, now=self._loop.time())
        self._set_draining(drain.worker, True)
        self.apply(ev.DrainBegun(drain.worker, by, notice_s))
        with contextlib.suppress(AlreadyThereError):  # everything there is moving already, or nothing is there
            self.start(handover_id, request, by)

    def end_drain(self, worker: str, by: str) -> None:
        """When it returns, the end is journalled and in the view."""
        self._set_draining(worker, False)
        self.apply(ev.DrainEnded(worker, by))

    def _set_draining(self, worker: str, draining: bool) -> None:
        self._cluster.set_draining(worker, draining)
        self.refresh_view()

    def drain_state(self, worker: str) -> DrainView:
        """The progress of a drain, from a fresh view; changes nothing. Raises UnknownError."""
        self.refresh_view()
        return self.core.drain_state(worker, self._cluster.remains(worker), now=self._loop.time())

    def forget_job(self, name: str, by: str, *, dry_run: bool, at_once: bool) -> common_pb2.ForgetJobReply:
        """Forgets a job: its state is deleted at once, or after the grace. `by`: the requester; empty: not known.

        Raises PreconditionError while the job may be running, and UnknownError if it is not known.
        """
        planned = self.core.plan_forget(name, at_once=at_once, now=self._loop.time())
        usage = self._usage(planned.job)
        usage.left_s = planned.left_s
        if not dry_run:
            self.apply(ev.ForgetRequested(planned.job, planned.grace_s, by))
        return usage

    def _usage(self, job: str) -> common_pb2.ForgetJobReply:
        """Counts the replica groups of a job, and the files and bytes of it on each worker.

        Raises UnknownError if neither manager knows the job.
        """
        try:
            return self._cluster.forget_job(job, dry_run=True)
        except UnknownError as error:
            if any(seen.job == job for seen in self.core.jobs.all()):
                return common_pb2.ForgetJobReply(job=job)  # a query without state
            if self._cluster.is_deleted(job):
                raise UnknownError(f"job {job}: it was forgotten, and its state is deleted already") from error
            raise

    def undo_forget_job(self, name: str, by: str) -> str:
        """Takes `forget_job` back, and returns the id of the job.

        Raises UnknownError, InvalidRequestError for a name of several jobs, and PreconditionError once it is due.
        """
        deletion = self.core.deletions.find(name)
        if deletion is None and self._cluster.is_deleted(name):
            raise PreconditionError(f"job {name}: the time to take it back is over, and its state is deleted")
        self.apply(ev.ForgetUndone(name, by))
        return deletion.job if deletion is not None else name

    def forget_worker(self, worker: str, by: str, *, dry_run: bool) -> common_pb2.ForgetWorkerReply:
        """Forgets a worker. Raises UnknownError, and PreconditionError unless the worker has ended."""
        forgotten = self._cluster.forget_worker(worker, dry_run=dry_run)
        self.refresh_view()
        if not dry_run:
            self.apply(ev.WorkerForgotten(worker, by))
        return forgotten

    @contextlib.contextmanager
    def session(self, session: Session) -> Iterator[None]:
        """Registers a driver's session while the context is open. Ends the former session of the same driver."""
        for replaced in self._sessions.open(session):
            self.apply(ev.SessionClosed(replaced.number))
        try:
            yield
        finally:
            self._sessions.ended(session)
            if self._runner.open:
                self.apply(ev.SessionClosed(session.number))

    def watch(self, handover_id: str) -> AsyncIterator[pb.HandoverStatus]:
        """The present status, then each change until the handover has ended. Raises UnknownError."""
        return self._watchers.watch(self.core.handovers.find(handover_id))

    # ---------------------------------------------------------------- ports of the core

    def persist(self, effects: Sequence[ev.Effect]) -> None:
        stored.persist(self._journal, effects)

    def publish(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Persist():
                return  # persisted before
            case ev.RefuseQuery(_, job, run_id, reason):
                log.warning("query refused", extra={"job": job, "run": run_id, "why": reason})
                self._sessions.send(effect)
            case ev.PushLocations() | ev.ProbeSession() | ev.NameLost() | ev.ReadCheckpoint():
                self._sessions.send(effect)
            case ev.PublishLogged():
                self._publishing.add(effect)
                self._archive(effect)
            case ev.NameSettings(job):  # if they are refused, the first commit also fails, with the same reason
                _try("settings not changed", job, lambda: self._cluster.name_settings(effect))
            case ev.NameExecutors():
                self._cluster.name_executors(effect)
            case ev.ChangeGroup():
                self._change_group(effect)
            case ev.FindWriters():
                self._spawn(self._find_writers(effect))
            case ev.DeleteJob(job):
                self._delete_job(job)
            case ev.Announce(handover_id):
                self._announce(self.core.handovers.find(handover_id))
            case _:
                assert_never(effect)

    def _announce(self, handover: DrivenHandover) -> None:
        self._cluster.name_targets(self.core.handovers.targets())
        for listener in self._listeners:
            listener(handover)
        if handover.ended or not self._watchers.watched(handover.handover_id):
            fields = {"handover": handover.handover_id, "phase": handover.phase.value, "reason": handover.reason}
            log.info("handover", extra=fields)
        self._watchers.announce(handover)

    def _archive(self, effect: ev.PublishLogged) -> None:
        job = self.core.jobs[effect.job]
        if self.archiver is not None and not job.temporary:
            logged_ms = time.time_ns() // 1_000_000
            known = BatchKnown(job.job, effect.batch_id, effect.versions, logged_ms, job.run.name, job.location)
            self.archiver.post(known)

    def _ask_driver(self, job: str, batch_id: int) -> bool:
        known = self.core.jobs.get(job)
        if known is None or known.run.session is None:
            return False
        self._sessions.send(ev.ReadCheckpoint(known.run.session, job, batch_id))
        return True

    def _publish_logged(self, effect: ev.PublishLogged) -> None:
        """A refusal costs retention only: the next batch raises the floors again."""
        _try("floors not published", effect.job, lambda: self._cluster.publish(effect))

    def _change_group(self, effect: ev.ChangeGroup) -> None:
        error: RhinoError | None = None
        step = "handover.join" if effect.add_member else "handover.owner"
        hit(f"{step}.before")
        try:
            self._cluster.change_group(effect)
        except RhinoError as refusal:
            error = refusal
            log.info("group not changed", extra={"group": str(effect.group), "error": str(error)})
        hit(f"{step}.after")
        self._runner.post(ev.GroupChanged(effect.handover_id, effect.group, error))

    def _delete_job(self, job: str) -> None:
        """Deletes the state of a job. After an error the core asks again."""
        hit("forget.delete.before")
        try:
            self._cluster.forget_job(job, dry_run=False)
        except UnknownError:
            log.info("forgotten job has no state", extra={"job": job})
        except RhinoError as error:
            log.warning("state of a forgotten job not deleted", extra={"job": job, "error": str(error)})
            return
        hit("forget.delete.after")
        if self.archiver is not None:
            self.archiver.post(JobGone(job))
        self._runner.post(ev.JobForgotten(job))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(work)

    async def _find_writers(self, effect: ev.FindWriters) -> None:
        workers = [seen.worker for seen in self.core.view.workers.values() if seen.reachable]
        hit("handover.writers.before")
        async with self._checks:
            writers = await self._finder.find(effect.versions, workers, effect.near)
        hit("handover.writers.after")
        self._runner.post(ev.WritersFound(effect.job, effect.batch_id, writers))
        self._views.soon()


def _try(what: str, job: str, call: Callable[[], None]) -> None:
    """Calls the replication manager. Logs a refusal as `what`."""
    try:
        call()
    except RhinoError as error:
        log.warning(what, extra={"job": job, "error": str(error)})
