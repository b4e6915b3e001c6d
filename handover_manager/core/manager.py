"""The core of the handover manager: jobs and handovers behind one `handle` (contract: `rhino.machine`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import assert_never

from handover_manager.core import events as ev
from handover_manager.core.drain import DrainState, check_enough, drain_state
from handover_manager.core.explain import Explanation, explain
from handover_manager.core.figures import Figures, copy_rate
from handover_manager.core.handover import Handover
from handover_manager.core.handovers import Handovers
from handover_manager.core.intents import Drain
from handover_manager.core.job import Job
from handover_manager.core.jobs import Jobs
from handover_manager.core.plan import Plan, Request, Situation, deadline_of, make_plan, parse_nodes
from handover_manager.core.predict import predict
from handover_manager.core.view import ClusterView
from rhino.errors import InvalidRequestError, PreconditionError

SETTLE_S = 10.0  # after a start, time for the workers to introduce themselves before they count as lost


class HandoverCore:
    """Plans and drives handovers, and keeps every job's map of desired workers.

    `started` is the monotonic time of this process's start; `wall_offset_s` is wall clock minus monotonic time.
    """

    def __init__(
        self,
        *,
        started: float,
        wall_offset_s: float,
        jobs: Iterable[Job] = (),
        handovers: Iterable[Handover] = (),
    ) -> None:
        self.jobs = Jobs(jobs)
        self._offset_s = wall_offset_s
        self.handovers = Handovers(self.jobs, wall_offset_s, handovers)
        self.view = ClusterView()
        self._settled_at = started + SETTLE_S
        self._seen: set[str] = set()  # workers that have been live since the start

    def resume(self, *, now: float) -> list[ev.Effect]:
        """Once, before any event: takes up the restored handovers."""
        self.view = self._presume(self.view, now)
        return self.handovers.restart(self.view, now)

    def plan(self, request: Request, *, now: float) -> Plan:
        """Checks, plans and predicts; changes nothing. Raises the errors documented at HandoverRequest."""
        if request.job:
            job = self.jobs.find(request.job).job
            concerned = [self.jobs[job]]
        elif isinstance(request.intent, Drain):
            job, concerned = "", [seen for seen in self.jobs.all() if seen.session is not None]
        else:
            raise InvalidRequestError("no job given: only a drain concerns all of them; name its id or unique name")
        situation = Situation(
            nodes={node: operators for seen in concerned for node, operators in seen.nodes.items()},
            desired={node: worker for seen in concerned for node, worker in seen.desired.items()},
            running=self.handovers.running(),
            arriving=self.handovers.arriving(),
            view=self.view,
            work={node: told for seen in concerned for node, told in seen.work.usual().items()},
        )
        return self._predicted(make_plan(request, job, situation), now)

    def _predicted(self, plan: Plan, now: float) -> Plan:
        """With the figures of its job; of several jobs, of the one whose batches take longest."""
        jobs = [self.jobs[job].figures for job in plan.jobs]
        figures = max(jobs, key=lambda f: f.batch_s or 0.0, default=Figures())
        rate = copy_rate(jobs) or copy_rate(job.figures for job in self.jobs.all())
        wait_s = max(plan.strategy.start_at_ms / 1000 - (now + self._offset_s), 0.0)
        prediction = predict(plan.steps, plan.strategy, figures, rate, wait_s)
        return dataclasses.replace(plan, prediction=prediction)

    def check_over(self, name: str, *, now: float) -> str:
        """The id of a job that may be forgotten: it does not run and no handover moves it. Changes nothing.

        Raises PreconditionError; also soon after the start, when drivers have not introduced themselves yet.
        """
        if now < self._settled_at:
            raise PreconditionError(
                "the manager has just started and drivers may not have reported yet: try again in "
                f"{self._settled_at - now:.0f} s"
            )
        job = self.jobs.check_over(name, now - SETTLE_S)
        self.handovers.check_none(job)
        return job

    def drain_state(self, worker: str, *, now: float) -> DrainState:
        """Whether the worker can be removed. Raises UnknownError."""
        settled = now >= self._settled_at
        return drain_state(worker, self.jobs.all(), self.handovers.active(), self.view, settled=settled)

    def check_drain(self, worker: str) -> None:
        """Raises TooFewWorkersError when the others cannot take its copies."""
        check_enough(worker, self.view)

    def explain(self, name: str, virtual_node: str) -> Explanation:
        """Raises UnknownError and InvalidRequestError for the job or the virtual node."""
        job = self.jobs.find(name)
        (node,) = parse_nodes(job.job, (virtual_node,))
        return explain(job, node, self.handovers.all(), self.view)

    def handle(self, event: ev.Event, *, now: float) -> list[ev.Effect]:
        match event:
            case ev.ClusterSeen(view):
                self.view = self._presume(view, now)
                return [*self.handovers.observe(self.view, now), *self.jobs.refresh(self.view)]
            case ev.QueryStarted():
                return self.jobs.query_started(event, self.view)
            case ev.QueryEnded():
                self.jobs.query_ended(event)
                return []
            case ev.SessionClosed(session):
                self.jobs.session_closed(session, now)
                return []
            case ev.BatchLogged():
                return self.jobs.batch_logged(event, now)
            case ev.QueryIdle(job):
                return self.handovers.query_idle(job, self.view, now) if self.jobs.query_idle(event) else []
            case ev.WritersFound():
                return self._writers_found(event, now)
            case ev.HandoverRequested(handover_id, request):
                plan = self.plan(request, now=now)
                return self.handovers.start(handover_id, plan, deadline_of(request), self.view, now)
            case ev.CancelRequested(handover_id):
                return self.handovers.cancel(handover_id, self.view, now)
            case ev.GroupChanged():
                return self.handovers.group_changed(event, self.view, now)
            case ev.DrainEnded(worker):
                return self.handovers.shorten(worker, self.view)
            case ev.JobForgotten(job):
                return [*self.handovers.forget(job), *self.jobs.forget(job)]
            case ev.Tick():
                return self.handovers.expire(self.view, now)
            case _:
                assert_never(event)

    def next_deadline(self) -> float | None:
        return self.handovers.next_deadline()

    def check_invariants(self) -> None:
        self.jobs.check_invariants()
        self.handovers.check_invariants()

    def _writers_found(self, event: ev.WritersFound, now: float) -> list[ev.Effect]:
        found = self.jobs.writers_found(event)
        if found is None:
            return []
        batch, actual = found
        settled = self.handovers.batch_settled(event.job, event.batch_id, batch, actual, self.view, now)
        return [*settled, *self.jobs.push_again(event.job, self.view)]

    def _presume(self, view: ClusterView, now: float) -> ClusterView:
        """Until the start has settled, workers not yet heard of count as reachable: a restart loses nobody."""
        self._seen.update(w for w, seen in view.workers.items() if seen.reachable)
        if now >= self._settled_at:
            return view
        named = {m.worker.worker_id for seen in view.groups.values() for m in seen.group.members}
        named.update(w for job in self.jobs.all() for w in job.desired.values())
        named.update(target for h in self.handovers.all() for target in h.plan.targets)
        return dataclasses.replace(view, presumed=frozenset(named - self._seen))
