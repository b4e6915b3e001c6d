"""Runs the core on asyncio: feeds it what is seen of the cluster, carries out its effects."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from handover_manager.core import events as ev
from handover_manager.core.drain import DrainState
from handover_manager.core.figures import PREFIX as FIGURES_PREFIX
from handover_manager.core.figures import figures_of_json
from handover_manager.core.handover import Handover
from handover_manager.core.manager import HandoverCore
from handover_manager.core.matching import load_libraries
from handover_manager.core.plan import Plan, Request
from handover_manager.core.records import HANDOVER_PREFIX, JOB_PREFIX, STEP_PREFIX, handover_of_json, job_of_json
from handover_manager.core.step import Phase
from handover_manager.core.strategy import Kind
from handover_manager.rpc.cluster import ReplicationClient
from handover_manager.rpc.messages import handover_to_pb
from handover_manager.rpc.moments import after_write, before_write
from handover_manager.rpc.session import DriverLine
from handover_manager.rpc.writers import WriterFinder
from rhino.errors import RhinoError, UnavailableError, UnknownError
from rhino.failpoints import hit
from rhino.journal import Journal
from rhino_pb import common_pb2
from rhino_pb import handover_pb2 as pb

log = logging.getLogger(__name__)
POLL_S = 0.25
POLL_PREPARING_S = 0.1  # while a target catches up
CHECKS_MAX = 16  # batches whose writers are asked for at the same time


async def _fail(error: Exception) -> None:
    raise error


def restore(journal: Journal, now: float) -> HandoverCore:
    """The core as journalled. A handover past its marker gets its whole deadline again."""
    steps = dict(journal.items(STEP_PREFIX))
    handovers = [handover_of_json(value, steps) for _, value in journal.items(HANDOVER_PREFIX)]
    jobs = [job_of_json(value) for _, value in journal.items(JOB_PREFIX)]
    figures = {key.removeprefix(FIGURES_PREFIX): value for key, value in journal.items(FIGURES_PREFIX)}
    for job in jobs:
        if job.job in figures:
            job.figures = figures_of_json(figures[job.job])
    return HandoverCore(started=now, wall_offset_s=time.time() - now, jobs=jobs, handovers=handovers)


class Runtime:
    """Everything around the core that has a life: polling, calls to other processes, drivers' lines, watchers.

    Events are applied one at a time on the loop's thread, each one's effects at once and in order: journal first,
    then what others see. Calls to other processes run on their own and come back as events.
    """

    def __init__(self, journal: Journal, manager: str) -> None:
        """`manager` is "host:port" of the process itself: the replication manager is used by its service."""
        self._journal = journal
        self._cluster = ReplicationClient(manager)
        self._finder = WriterFinder()
        self._loop = asyncio.get_running_loop()
        self.core = restore(journal, self._loop.time())
        self._tasks: asyncio.TaskGroup | None = None
        self._lines: dict[int, DriverLine] = {}
        self._watchers: dict[str, list[asyncio.Queue[pb.HandoverStatus]]] = defaultdict(list)
        self._wake = asyncio.Event()
        self._looking = asyncio.Lock()
        self._notice: Callable[[Handover], None] = lambda handover: None
        self._checks = asyncio.Semaphore(CHECKS_MAX)

    def notice_announced(self, notice: Callable[[Handover], None]) -> None:
        """`notice` is called whenever a handover has changed."""
        self._notice = notice

    @property
    def generation(self) -> int:
        return self._journal.generation

    async def run(self) -> None:
        """Until cancelled. An error of the core or the journal ends it: then the process must end too."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._execute(self.core.resume(now=self._loop.time()))
                await self._follow()
        finally:
            self._tasks = None
            await self._finder.close()
            await self._cluster.close()

    def apply(self, event: ev.Event) -> None:
        """Feeds the core; raises what the core refuses, and UnavailableError before `run`."""
        if self._tasks is None:
            raise UnavailableError("the handover manager is starting or stopping: try again")
        self._execute(self.core.handle(event, now=self._loop.time()))

    async def look(self) -> None:
        """Takes a fresh view of the cluster; raises UnavailableError."""
        async with self._looking:
            asked_at = self._loop.time()
            view = await self._cluster.view()
            self.apply(ev.ClusterSeen(dataclasses.replace(view, asked_at=asked_at)))

    async def look_for(self, request: Request) -> None:
        """Takes a fresh view to plan `request` on, with the libraries that its strategy needs."""
        if request.strategy.kind is Kind.MATCHED:
            await asyncio.to_thread(load_libraries)
        await self.look()

    async def plan(self, request: Request) -> Plan:
        """On a fresh view; changes nothing."""
        await self.look_for(request)
        return self.core.plan(request, now=self._loop.time())

    async def set_draining(self, worker: str, draining: bool) -> None:
        """Journalled by the replication manager when it returns, and in the view."""
        await self._cluster.set_draining(worker, draining)
        await self.look()
        if not draining:
            self.apply(ev.DrainEnded(worker))

    async def drain_state(self, worker: str) -> DrainState:
        """On a fresh view; changes nothing. Raises UnknownError."""
        await self.look()
        return self.core.drain_state(worker, now=self._loop.time())

    async def forget_job(self, name: str, *, dry_run: bool) -> common_pb2.ForgetJobReply:
        """Raises PreconditionError while the job may be running, UnknownError when nobody knows it."""
        job = self.core.check_over(name, now=self._loop.time())
        known = any(seen.job == job for seen in self.core.jobs.all())
        if not dry_run:
            self.apply(ev.JobForgotten(job))
        try:
            return await self._cluster.forget_job(job, dry_run=dry_run)
        except UnknownError:
            if not known:
                raise
            return common_pb2.ForgetJobReply(job=job)  # a query without state

    def look_soon(self) -> None:
        """Asks for a fresh view without waiting for it."""
        self._wake.set()

    async def publish_floors(self, batch: pb.BatchLogged) -> None:
        """A failure costs retention only: floors rise again with the next batch."""
        try:
            await self._cluster.publish_floors(batch)
        except RhinoError as error:
            log.warning("floors not published", extra={"job": batch.job, "error": str(error)})

    @contextlib.contextmanager
    def line(self, line: DriverLine) -> Any:
        """Registers a driver's line for the duration of the context."""
        self._lines[line.number] = line
        try:
            yield
        finally:
            del self._lines[line.number]
            if self._tasks is not None:
                self.apply(ev.SessionClosed(line.number))

    async def watch(self, handover_id: str) -> AsyncIterator[pb.HandoverStatus]:
        """Status now and at each change, up to the one that has ended. Raises UnknownError."""
        queue: asyncio.Queue[pb.HandoverStatus] = asyncio.Queue()
        self._watchers[handover_id].append(queue)
        try:
            handover = self.core.handovers.find(handover_id)
            ended, last = handover.ended, handover_to_pb(handover)
            yield last
            while not ended:
                status = await queue.get()
                ended = bool(status.finished_ms)
                if status != last:
                    yield status
                last = status
        finally:
            self._watchers[handover_id].remove(queue)
            if not self._watchers[handover_id]:
                del self._watchers[handover_id]

    async def _follow(self) -> None:
        available = True
        while True:
            try:
                await self.look()
                available = True
            except RhinoError as error:
                if available:
                    log.warning("no view of the cluster", extra={"error": str(error)})
                available = False
                self.apply(ev.Tick())
            await self._pause()

    async def _pause(self) -> None:
        preparing = any(s.phase is Phase.PREPARING for h in self.core.handovers.active() for s in h.steps)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_PREPARING_S if preparing else POLL_S):
                await self._wake.wait()
        self._wake.clear()

    def _execute(self, effects: list[ev.Effect]) -> None:
        """Journals first, all or nothing. A failure leaves core and journal apart: that ends `run`."""
        records = {e.key: e.value for e in effects if isinstance(e, ev.Persist) and e.value is not None}
        try:
            before_write(records)
            self._journal.put_all(records)
            after_write(records)
            for effect in effects:
                self._carry_out(effect)
        except Exception as error:
            self._spawn(_fail(error))
            raise

    def _carry_out(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Persist(key, None):
                self._journal.delete(key)
            case ev.Persist():
                pass  # with the others of its event, in one write
            case ev.PushLocations(session):
                if session in self._lines:
                    self._lines[session].push(effect)
            case ev.Announce(handover_id):
                self._announce(handover_id)
            case ev.ChangeGroup():
                self._spawn(self._change_group(effect))
            case ev.FindWriters():
                self._spawn(self._find_writers(effect))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None, "effects are executed while running only"
        self._tasks.create_task(work)

    def _announce(self, handover_id: str) -> None:
        handover = self.core.handovers.find(handover_id)
        self._notice(handover)
        status = handover_to_pb(handover)
        if handover.ended or not self._watchers.get(handover_id):
            fields = {"handover": handover_id, "phase": handover.phase.value, "reason": handover.reason}
            log.info("handover", extra=fields)
        for queue in self._watchers.get(handover_id, []):
            queue.put_nowait(status)

    async def _change_group(self, effect: ev.ChangeGroup) -> None:
        error: RhinoError | None = None
        if effect.add_member:
            hit("handover.join.before")
        else:
            hit("handover.owner.before")
        try:
            await self._cluster.change_group(effect)
        except RhinoError as failure:
            error = failure
            log.info("group not changed", extra={"group": str(effect.group), "error": str(error)})
        if effect.add_member:
            hit("handover.join.after")
        else:
            hit("handover.owner.after")
        self.apply(ev.GroupChanged(effect.handover_id, effect.group, error))
        if error is None:
            self.look_soon()

    async def _find_writers(self, effect: ev.FindWriters) -> None:
        workers = [seen.worker for seen in self.core.view.workers.values() if seen.reachable]
        hit("handover.writers.before")
        async with self._checks:
            writers = await self._finder.find(effect.versions, workers)
        hit("handover.writers.after")
        self.apply(ev.WritersFound(effect.job, effect.batch_id, writers))
