"""The core of the handover manager: jobs and handovers behind one `handle` (contract: `rhino_core.runner`)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import NamedTuple, assert_never

from handover_manager import events as ev
from handover_manager.adapt.adaptation import Adaptation, Parts
from handover_manager.adapt.policy import Policy
from handover_manager.adapt.trial import AdaptationRecord
from handover_manager.drive.drain import check_enough, drain_state
from handover_manager.drive.execution import Execution
from handover_manager.drive.explain import explain, workers_of
from handover_manager.drive.handover import DrivenHandover
from handover_manager.drive.handovers import Handovers
from handover_manager.plan.holdings import Holdings
from handover_manager.plan.measurements import Measurements, copy_rate, predict
from handover_manager.plan.planner import deadline_of, make_plan, parse_nodes
from handover_manager.plan.situation import Situation
from handover_manager.queries import history
from handover_manager.queries.forgetting import Deletion, Deletions
from handover_manager.queries.history import ActionRecord, History
from handover_manager.queries.job import Job
from handover_manager.queries.jobs import Jobs
from handover_manager.queries.run import Run
from handover_manager.queries.runs import Runs
from handover_manager.view import ClusterView, Remains
from rhino_core.errors import AlreadyThereError, InvalidRequestError, PreconditionError
from rhino_core.ids import VirtualNode
from rhino_core.text import duration
from rhino_model.decisions import Decision
from rhino_model.handovers import DrainView, Explanation, Plan
from rhino_model.intents import Drain, Request, needs_work

FORGET_GRACE_S = 24 * 3600.0
SETTLE_S = 10.0  # after a start, time for workers and drivers to register before they count as lost
TEMPORARY = "Spark, which deletes temporary checkpoints"  # has forgotten the job
USUAL = Policy()
SLICE_PAUSE_S = 0.002  # between views as long as maps are due: others have their turn meanwhile
AGAIN_S = 0.25  # after a view with effects, or a refused change of a group: time until the next view at the latest


class PlannedForget(NamedTuple):
    """The effect of forgetting a job: `grace_s` as asked for now, `left_s` until its state is deleted."""

    job: str
    grace_s: float
    left_s: float


class Journalled(NamedTuple):
    """The content of the journal at a start."""

    jobs: Iterable[Job] = ()
    handovers: Iterable[DrivenHandover] = ()
    deletions: Iterable[Deletion] = ()
    actions: Iterable[ActionRecord] = ()
    adaptation: AdaptationRecord | None = None
    decisions: Iterable[Decision] = ()


class HandoverCore:
    """Plans and drives handovers, and keeps the map of desired workers of every job.

    `started` is the monotonic start time of this process. `wall_offset_s` is wall clock minus monotonic time,
    for the times shown to people.
    """

    def __init__(
        self,
        *,
        started: float,
        wall_offset_s: float,
        journalled: Journalled,
        policy: Policy = USUAL,
        forget_grace_s: float = FORGET_GRACE_S,
    ) -> None:
        self._offset_s = wall_offset_s
        self._forget_grace_s = forget_grace_s
        self.jobs = Jobs(journalled.jobs)
        for job in self.jobs.all():
            job.run.lose(started)
        self.handovers = Handovers(journalled.handovers)
        self.deletions = Deletions(wall_offset_s, journalled.deletions)
        self.history = History(wall_offset_s, journalled.actions)
        self._runs = Runs(self.jobs, wall_offset_s)
        self._execution = Execution(self.jobs, self.handovers, wall_offset_s)
        self._holdings = Holdings()
        self.adaptation = Adaptation(
            Parts(self.jobs, self.handovers, self._start, self._predicted, self._runs.usable, self._holdings),
            policy,
            wall_offset_s=wall_offset_s,
            started=started,
            record=journalled.adaptation,
            decisions=journalled.decisions,
        )
        self.view = ClusterView()
        self._settled_at = started + SETTLE_S
        self.seen_at = started  # time of the newest view: everything due by then is done
        self._again_at = started  # see AGAIN_S
        self._seen: set[str] = set()  # workers that have been reachable since the start
        self._lost_until = 0.0  # until then a driver that was lost may come back

    def plan(self, request: Request, *, now: float) -> Plan:
        """Checks, plans and predicts; changes nothing. Raises the errors documented at HandoverRequest."""
        if request.job:
            job = self.jobs.find(request.job).job
            concerned = [self.jobs[job]]
        elif isinstance(request.intent, Drain):
            job, concerned = "", [seen for seen in self.jobs.all() if seen.run.session is not None]
        else:
            raise InvalidRequestError("no job given: only a drain concerns all of them; name its id or unique name")
        situation = Situation(
            nodes={node: operators for seen in concerned for node, operators in seen.map.nodes.items()},
            desired={node: worker for seen in concerned for node, worker in seen.map.desired.items()},
            running=self.handovers.running(),
            arriving=self.handovers.arriving(),
            view=self.view,
            work={node: work for seen in concerned for node, work in seen.work.usual().items()}
            if request.intent is not None and needs_work(request.intent)
            else {},
            barred=self._barred(concerned),
            holdings=self._holdings,
        )
        return self._predicted(make_plan(request, job, situation), now)

    def _barred(self, jobs: Iterable[Job]) -> dict[VirtualNode, frozenset[str]]:
        """For virtual nodes of `jobs`, the workers without executors of the query."""
        unusable = [(job, workers) for job in jobs if (workers := self._runs.unusable(job, self.view))]
        return {node: workers for job, workers in unusable for node in job.map.nodes}

    def _predicted(self, plan: Plan, now: float) -> Plan:
        """Adds a prediction from the statistics of the plan's job.

        A plan for several jobs uses those of the job with the slowest batches.
        """
        jobs = [self.jobs[job].measurements for job in plan.jobs]
        measurements = max(jobs, key=lambda f: f.batch_s or 0.0, default=Measurements())
        rate = copy_rate(jobs) or copy_rate(job.measurements for job in self.jobs.all())
        wait_s = max(plan.strategy.start_at_ms / 1000 - (now + self._offset_s), 0.0)
        return predict(plan, measurements, rate, wait_s)

    def plan_forget(self, name: str, *, at_once: bool, now: float) -> PlannedForget:
        """Checks that a job may be forgotten: it does not run, and no handover moves it. Changes nothing.

        Raises PreconditionError, also soon after the start, when drivers may not have reported yet.
        """
        if now < self._settled_at:
            raise PreconditionError(
                "the manager has just started and drivers may not have reported yet: try again in "
                f"{self._settled_at - now:.0f} s"
            )
        job = self._runs.check_not_running(name, now - SETTLE_S)
        self.handovers.check_none(job)
        grace_s = 0.0 if at_once else self._forget_grace_s
        former = self.deletions.get(job) if grace_s else None
        return PlannedForget(job, grace_s, grace_s if former is None else former.left_s(now))

    def may_return(self, job: Job, *, now: float) -> bool:
        """Whether no driver runs the job, and a lost one may come back."""
        return job.run.may_return(now - SETTLE_S)

    def executors(self, job: Job) -> int | None:
        """Number of executors of its application. None without a driver."""
        return self._runs.executors(job)

    def drain_state(self, worker: str, remains: Remains, *, now: float) -> DrainView:
        """Whether the worker, with its `remains`, can be removed. Raises UnknownError.

        A query whose driver was lost some time ago counts as stopped: nothing moves it, and a later start loads its
        state.
        """
        settled, running = now >= self._settled_at, self._runs.running(now - SETTLE_S)
        active = self.handovers.active()
        state = drain_state(worker, running, active, self.view, self.jobs.name_of, remains, settled=settled)
        mark = self.history.newest(history.DRAIN, worker=worker) if state.draining else None
        if mark is None or not mark.leaves_ms:
            return state
        return dataclasses.replace(state, leaves_in_s=max(mark.leaves_ms / 1000 - (now + self._offset_s), 0.0))

    def check_drain(self, request: Request, drain: Drain, *, now: float) -> None:
        """Raises the errors of `plan`, and TooFewWorkersError if the other workers cannot take this one's copies."""
        check_enough(drain.worker, self.view)
        with contextlib.suppress(AlreadyThereError):
            self.plan(request, now=now)

    def explain(self, name: str, virtual_node: str) -> Explanation:
        """Explains the place of a virtual node.

        Raises UnknownError and InvalidRequestError for the job or the virtual node.
        """
        job = self.jobs.find(name)
        (node,) = parse_nodes(job.job, (virtual_node,))
        found = explain(job, node, self.handovers.all(), self.view)
        return dataclasses.replace(found, reasons=(*found.reasons, *self._who(job, node)))

    def _who(self, job: Job, node: VirtualNode) -> list[str]:
        """The people that drain the workers of a virtual node, or have forgotten its job."""
        draining = sorted(worker for worker in workers_of(job, node, self.view) if self.view.draining(worker))
        marks = [self.history.newest(history.DRAIN, worker=worker) for worker in draining]
        forgotten = self.history.newest(history.FORGET, job=job.job) if self.deletions.get(job.job) else None
        return [action.told() for action in (*marks, forgotten) if action is not None]

    def handle(self, event: ev.Event, *, now: float) -> list[ev.Effect]:
        match event:
            case ev.ClusterSeen(view):
                return self._observe(view, now)
            case ev.Restarted():
                self.view = self._presume(self.view, now)
                return self._execution.restart(self.view, now)
            case ev.QueryStarted():
                self._holdings.forget(event.job)
                return self.deletions.refuse(event, now) or self._runs.query_started(event, self.view, now)
            case ev.QueryEnded():
                return self._runs.query_ended(event, self.view, now)
            case ev.SessionClosed(session):
                self._lost_until = now + SETTLE_S
                return self._runs.session_closed(session, self.view, now)
            case ev.SessionAnswered(session):
                return self._runs.session_answered(session)
            case ev.ExecutorChanged():
                return self._runs.executor_changed(event)
            case ev.CheckpointMoved(name, location, by):
                done = self._runs.checkpoint_moved(event)
                return [*done, *self._acted(now, history.MOVED, by, self.jobs.find(name).job, detail=location)]
            case ev.OwnerSet(name, owner, by):
                done = self._runs.owner_set(event)
                return [*done, *self._acted(now, history.OWNER, by, self.jobs.find(name).job, detail=owner)]
            case ev.BatchLogged():
                return self._batch_logged(event, now)
            case ev.QueryIdle():
                return self._execution.query_idle(event.job, self.view, now) if self._runs.query_idle(event) else []
            case ev.WritersFound():
                return self._writers_found(event, now)
            case ev.HandoverRequested(handover_id, request, by):
                plan = self.plan(request, now=now)
                return self._start(handover_id, plan, deadline_of(request), self.view, now, by)
            case ev.CancelRequested(handover_id, by):
                done = self._execution.cancel(handover_id, self.view, now)
                return [*done, *self._about(handover_id, now, history.CANCEL, by)]
            case ev.GroupChanged():
                if event.error is not None:
                    self._again_at = now + AGAIN_S
                return self._execution.group_changed(event, self.view, now)
            case ev.DrainBegun(worker, by, notice_s):
                return self._drain_begun(worker, by, notice_s, now)
            case ev.DrainEnded(worker, by):
                ended = self.history.add(now, ActionRecord(history.UNDRAIN, by, worker=worker))
                return [*self._execution.shorten(worker, self.view), *ended]
            case ev.WorkerForgotten(worker, by):
                return self.history.add(now, ActionRecord(history.FORGET_WORKER, by, worker=worker))
            case ev.ForgetRequested():
                return self._forget(event, now)
            case ev.ForgetUndone(name, by):
                deletion = self.deletions.find(name)
                done = self.deletions.undo(name)
                job = deletion.job if deletion else name
                return [*done, *self._runs.keep_state(job), *self._acted(now, history.UNDO, by, job)]
            case ev.JobForgotten(job):
                self._holdings.forget(job)
                deletion = self.deletions.get(job)
                deleted = self._acted(now, history.DELETED, deletion.by, job) if deletion else []
                forgotten = [*self.handovers.forget(job), *self._runs.forget(job), *self.adaptation.forget(job)]
                return [*forgotten, *self.deletions.end(job), *deleted]
            case _:
                assert_never(event)

    def next_deadline(self) -> float | None:
        """The time at which the core needs a view, even if nothing changes until then."""
        times = [
            self._settled_at,
            self._lost_until,
            self._again_at,
            *self._runs.deadlines(),
            *self._execution.deadlines(),
        ]
        times += [*self.deletions.deadlines(), *([self.seen_at + SLICE_PAUSE_S] if self.jobs.behind else [])]
        return min((at for at in times if at > self.seen_at), default=None)

    def check_invariants(self) -> None:
        self.jobs.check_invariants()
        self.handovers.check_invariants()
        assert not [job for job in self.jobs.all() if job.run.session is not None and self.deletions.get(job.job)]

    def _observe(self, view: ClusterView, now: float) -> list[ev.Effect]:
        """Does everything possible with the view, and everything due."""
        self.view, self.seen_at = self._presume(view, now), now
        seen = [*self._execution.observe(self.view, now), *self.jobs.refresh(self.view), *self._runs.expire(now)]
        if now >= self._settled_at:
            seen += self._forget_temporary(now)
            seen += self.deletions.observe(self.handovers.moved_jobs(), now)
            seen += self.adaptation.observe(self.view, now)
        if seen:
            self._again_at = now + AGAIN_S
        return seen

    def _batch_logged(self, event: ev.BatchLogged, now: float) -> list[ev.Effect]:
        effects = self._runs.batch_logged(event, now)
        if effects and not event.repeated:
            self.adaptation.batch_logged(event)
        return effects

    def _drain_begun(self, worker: str, by: str, notice_s: float, now: float) -> list[ev.Effect]:
        """A worker with notice is the target of no handover any more, as far as these can be cancelled."""
        leaves_ms = round((now + notice_s + self._offset_s) * 1000) if notice_s else 0
        detail = f"leaves in {duration(notice_s)}" if notice_s else ""
        action = ActionRecord(history.DRAIN, by, worker=worker, detail=detail, leaves_ms=leaves_ms)
        effects = self.history.add(now, action)
        arriving = self.handovers.arriving().get(worker)
        if notice_s and arriving is not None:
            with contextlib.suppress(PreconditionError):  # its last marker is set
                effects += self._execution.cancel(arriving, self.view, now)
        return effects

    def _forget(self, event: ev.ForgetRequested, now: float) -> list[ev.Effect]:
        name = self.plan_forget(event.job, at_once=not event.grace_s, now=now).job
        run = next((job.run for job in self.jobs.all() if job.job == name), Run())
        detail = f"deleted after {duration(event.grace_s)}" if event.grace_s else "deleted at once"
        done = self.deletions.begin(name, run, event.grace_s, now, event.by)
        return [*done, *(self._acted(now, history.FORGET, event.by, name, detail=detail) if done else [])]

    def _forget_temporary(self, now: float) -> list[ev.Effect]:
        """Forgets jobs with a checkpoint deleted by Spark: no run can go on with their state."""
        effects: list[ev.Effect] = []
        for job in self._runs.without_checkpoint(now - SETTLE_S):
            if self.deletions.get(job.job) is None:
                effects += self.deletions.begin(job.job, job.run, self._forget_grace_s, now, TEMPORARY)
                detail = f"deleted after {duration(self._forget_grace_s)}"
                effects += self._acted(now, history.FORGET, TEMPORARY, job.job, detail=detail)
        return effects

    def _acted(self, now: float, kind: str, by: str, job: str, detail: str = "") -> list[ev.Effect]:
        """An action about a job becomes history."""
        name = next((known.run.name for known in self.jobs.all() if known.job == job), "")
        return self.history.add(now, ActionRecord(kind, by, job=job, name=name, detail=detail))

    def _start(
        self, handover_id: str, plan: Plan, deadline_s: float, view: ClusterView, now: float, by: str
    ) -> list[ev.Effect]:
        """Begins a handover, and adds it to the history."""
        done = self._execution.start(handover_id, plan, deadline_s, view, now, by)
        return [*done, *self._about(handover_id, now, history.HANDOVER, by)]

    def _about(self, handover_id: str, now: float, kind: str, by: str) -> list[ev.Effect]:
        """An action about a handover becomes history."""
        plan = self.handovers.find(handover_id).plan
        (job,) = plan.jobs if len(plan.jobs) == 1 else ("",)
        name = next((known.run.name for known in self.jobs.all() if known.job == job), "")
        action = ActionRecord(kind, by, job=job, name=name, handover_id=handover_id, detail=plan.intent)
        return self.history.add(now, action)

    def _writers_found(self, event: ev.WritersFound, now: float) -> list[ev.Effect]:
        found = self.jobs.writers_found(event)
        if found is None:
            return []
        batch, actual = found
        settled = self._execution.batch_settled(event.job, event.batch_id, batch, actual, self.view, now)
        return [*settled, *self.jobs[event.job].push_again(self.view)]

    def _presume(self, view: ClusterView, now: float) -> ClusterView:
        """Adds workers without a registration since the start as reachable, until SETTLE_S is over.

        Without this a restart of the manager would make them look lost.
        """
        self._seen &= view.workers.keys()  # drops removed workers
        self._seen.update(w for w, seen in view.workers.items() if seen.reachable)
        if now >= self._settled_at:
            return view
        named = set(view.all_members())
        named.update(*(job.map.workers for job in self.jobs.all()))
        named.update(move.target for h in self.handovers.all() for move in h.plan.moves)
        return dataclasses.replace(view, presumed=frozenset(named - self._seen))
