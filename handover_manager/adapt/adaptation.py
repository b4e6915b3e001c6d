"""Adaptation: observes the load of queries, decides, moves virtual nodes, and verifies (Madsen & Zhou, section 3).

One plan is under way at a time. A plan that did not help is undone, and its virtual nodes stay for twice as long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from handover_manager.adapt.budget import Budget
from handover_manager.adapt.cool_downs import CoolDowns
from handover_manager.adapt.decisions import DecisionTable
from handover_manager.adapt.goal import Verdict
from handover_manager.adapt.policy import Mode, Policy
from handover_manager.adapt.proposal import Situated, judge
from handover_manager.adapt.scaling import Scaling
from handover_manager.adapt.trial import (
    TRIAL_KEY,
    AdaptationRecord,
    Stage,
    Trial,
    record_of_trial,
    trial_of_record,
)
from handover_manager.adapt.windows import Batch, Windows, imbalance, node_loads, usual_load, worker_loads
from handover_manager.drive.handovers import Handovers
from handover_manager.events import BatchLogged, Effect, Persist
from handover_manager.plan.holdings import Holdings
from handover_manager.plan.move import make_move
from handover_manager.plan.planner import DEFAULT_DEADLINE_S
from handover_manager.plan.situation import Situation
from handover_manager.queries.job import Job
from handover_manager.queries.jobs import Jobs
from handover_manager.view import ClusterView
from rhino_core.errors import RhinoError
from rhino_core.ids import VirtualNode
from rhino_model.decisions import DecidedMove, Decision, Outcome
from rhino_model.handovers import Phase, Plan, PlannedStep

BY = "adaptation"  # who asks for its handovers
ROWS_CHANGE = 0.25  # of the input rows of a usual batch, to be journalled
WATCH_S = 1800.0  # time in which batches have to show whether a plan has helped


class Parts(NamedTuple):
    """The parts of the core used by adaptation.

    `start` begins a handover, given its id, plan, deadline in seconds, a view, the present time and the requester.
    `predict` adds a prediction to a plan, at a time. `usable`: the view without workers unable to run the query.
    `holdings`: shared by all plans.
    """

    jobs: Jobs
    handovers: Handovers
    start: Callable[[str, Plan, float, ClusterView, float, str], list[Effect]]
    predict: Callable[[Plan, float], Plan]
    usable: Callable[[Job, ClusterView], ClusterView]
    holdings: Holdings


class Adaptation:
    """The adaptation of all queries. Methods return effects, to be executed in order. `started`: now."""

    def __init__(
        self,
        parts: Parts,
        policy: Policy,
        *,
        wall_offset_s: float,
        started: float,
        record: AdaptationRecord | None = None,
        decisions: Iterable[Decision] = (),
    ) -> None:
        self._jobs, self._handovers, self._start, self._predict, self._usable, self._holdings = parts
        self.policy = policy
        self._offset_s = wall_offset_s
        restored = record or AdaptationRecord()
        self._budget = Budget(policy.hourly_bytes, policy.hourly_moves, restored.spent, started)
        self._cool_downs = CoolDowns(policy.cool_down_s, restored.frozen, started)
        self.trial = trial_of_record(restored.trial, started + WATCH_S) if restored.trial is not None else None
        self.decisions = DecisionTable(decisions)
        self._windows: dict[str, Windows] = {}
        self.scaling = Scaling(policy.scale_in_s, policy.catch_up_s)
        self._usual_rows = dict(restored.usual_rows)  # as journalled
        self._ended: set[str] = set()  # jobs with a window that ended since the last view

    def batch_logged(self, event: BatchLogged) -> None:
        """Records the load of an accepted batch. Repeated batches do not come here."""
        job = self._jobs.get(event.job)
        if self.policy.mode is Mode.OFF or job is None or not event.work:
            return
        windows = self._windows.get(job.job)
        if windows is None:
            usual_rows = self._usual_rows.get(job.job, 0.0)
            windows = Windows(self.policy.window_batches, self.policy.windows, usual_rows)
            self._windows[job.job] = windows
        known = {node: work for node, work in event.work.items() if node in job.map.nodes}
        figures = event.rows, event.batch_s, event.trigger_s, event.lags
        batch = Batch(event.run_id, job.map.configuration_epoch, known, *figures)
        if windows.add(batch, job.map.desired):
            self._ended.add(job.job)

    def observe(self, view: ClusterView, now: float) -> list[Effect]:
        """Follows the plan under way, and decides about queries with a new window."""
        effects = self._follow(now) if self.trial is not None else []
        ended, self._ended = sorted(self._ended), set()
        for name in ended:
            job = self._jobs.get(name)
            if job is not None and job.run.session is not None:
                self.scaling.observe(name, self._windows[name], self._usable(job, view), now)
                effects += [*self._record_usual_rows(name, now), *self._decide(job, view, now)]
        return effects

    def forget(self, job: str) -> list[Effect]:
        """Drops everything about a job."""
        self._windows.pop(job, None)
        self._ended.discard(job)
        self._cool_downs.forget(job)
        self._usual_rows.pop(job, None)
        self.scaling.forget(job)
        effects = self.decisions.forget(job)
        if self.trial is not None and self.trial.job == job:
            self.trial = None
            effects.append(Persist(TRIAL_KEY, None))
        return effects

    # ---------------------------------------------------------------- decisions

    def _decide(self, job: Job, view: ClusterView, now: float) -> list[Effect]:
        trial = self.trial
        if trial is not None and trial.job == job.job and trial.stage is Stage.WATCHING:
            recovering = self._recovering(job, view)
            if recovering is not None:  # workers have changed, so nothing can be compared with what was before
                return self._end(trial, Outcome.UNVERIFIED, recovering[1], now)
            return self._verify(trial, job, view, now)
        reason = self._hindered(job, view)
        verdict = Verdict(*reason) if reason is not None else judge(self._situated(job, view, now), self.policy)
        if verdict.outcome is not Outcome.WOULD_MOVE or self.policy.mode is Mode.OBSERVE:
            return self._note(job.job, verdict, now)
        return self._begin(job, verdict, view, now)

    def _hindered(self, job: Job, view: ClusterView) -> tuple[Outcome, str] | None:
        """The obstacles to adapting a query, whatever its load is."""
        if self.trial is not None:
            return Outcome.BUSY, f"the plan of handover {self.trial.handover_id} is under way"
        active = self._handovers.active()
        if active:
            return Outcome.BUSY, f"handover {active[0].handover_id} is under way"
        draining = view.being_drained()
        if draining:
            return Outcome.BUSY, f"worker {draining[0]} is being drained"
        return self._recovering(job, view)

    def _recovering(self, job: Job, view: ClusterView) -> tuple[Outcome, str] | None:
        """Whether copies of the query are lacking, or a worker of it."""
        groups = [seen for group, seen in view.groups.items() if group.job == job.job]
        damaged = sum(not all(member.whole for member in seen.group.members) for seen in groups)
        short = sum(len(seen.group.members) <= seen.group.settings.replication_factor for seen in groups)
        if damaged or short:
            return Outcome.RECOVERING, f"{max(damaged, short)} replica groups lack a whole copy"
        gone = sorted({worker for worker in job.map.desired.values() if not view.reachable(worker)})
        return (Outcome.RECOVERING, f"worker {gone[0]} is not reachable") if gone else None

    def _situated(self, job: Job, view: ClusterView, now: float) -> Situated:
        situation = Situation(
            nodes=job.map.nodes,
            desired=job.map.desired,
            running=self._handovers.running(),
            arriving=self._handovers.arriving(),
            view=self._usable(job, view),
            holdings=self._holdings,
        )
        windows = self._windows[job.job]
        return Situated(
            job.job,
            tuple(windows.closed),
            situation,
            job.measurements.batch_s,
            windows.backlog,
            lambda plan: self._predict(plan, now),
            self._cool_downs.active(job.job, now),
            self._budget.left(now),
        )

    def _begin(self, job: Job, verdict: Verdict, view: ClusterView, now: float) -> list[Effect]:
        plan = verdict.plan
        assert plan is not None
        origins = {move.node: move.origin for move in plan.moves}
        desired = {**job.map.desired, **{move.node: move.target for move in plan.moves}}
        before, planned = (self._balance(job, view, at) for at in (job.map.desired, desired))
        handover_id = self._name(now)
        self.trial = Trial(job.job, handover_id, Stage.MOVING, origins, before, planned)
        self._budget.spend(plan.bytes_to_move, len(plan.moves), now)
        self._cool_downs.begin(origins, node_loads(self._windows[job.job].closed, self.policy.broken), now)
        noted = self._note(job.job, dataclasses.replace(verdict, outcome=Outcome.MOVING), now, handover_id)
        begun = self._start(handover_id, plan, DEFAULT_DEADLINE_S, view, now, BY)
        return [*noted, self._persist(now), *begun]

    # ---------------------------------------------------------------- the plan under way

    def _follow(self, now: float) -> list[Effect]:
        """Looks whether the handover of the plan under way has ended."""
        trial = self.trial
        assert trial is not None
        handover = self._handovers.get(trial.handover_id)
        if handover is not None and not handover.ended:
            return []
        if trial.stage is Stage.WATCHING:
            job = self._jobs.get(trial.job)
            if job is not None and job.run.session is not None and now < trial.watched_until:
                return []
            return self._end(trial, Outcome.UNVERIFIED, "too few batches have ended since", now)
        if handover is None or handover.phase is not Phase.CONFIRMED:
            why = handover.reason if handover is not None else "the handover is not known any more"
            return self._end(trial, Outcome.FAILED, why, now, failed=True)
        if trial.stage is Stage.RETURNING:
            return self._end(trial, Outcome.RETURNED, "the virtual nodes are where they were", now, failed=True)
        windows = self._windows.get(trial.job)
        if windows is not None:
            windows.clear()
        self.trial = dataclasses.replace(trial, stage=Stage.WATCHING, watched_until=now + WATCH_S)
        return [self._persist(now)]

    def _balance(self, job: Job, view: ClusterView, desired: Mapping[VirtualNode, str]) -> float:
        """The imbalance of the usual loads of all windows, with the virtual nodes on these workers."""
        workers = [name for name, seen in self._usable(job, view).workers.items() if seen.eligible]
        return imbalance(worker_loads(usual_load(self._windows[job.job].closed), desired, workers))

    def _verify(self, trial: Trial, job: Job, view: ClusterView, now: float) -> list[Effect]:
        """Compares the windows since the moves with the windows before."""
        if len(self._windows[job.job].closed) < self.policy.trial_windows:
            return []
        former = {**job.map.desired, **{node: at for node, at in trial.origins.items() if node in job.map.desired}}
        after, without = (self._balance(job, view, at) for at in (job.map.desired, former))
        what = f"imbalance of time {after:.2f}, was {trial.before:.2f}"
        told = f"{what}, {trial.planned:.2f} was planned, {without:.2f} without the moves"
        if trial.helped(after, without):
            return self._end(trial, Outcome.HELPED, told, now)
        nodes = {node: worker for node, worker in trial.origins.items() if node in job.map.nodes}
        back = {n: worker for n, worker in nodes.items() if view.reachable(worker) and not view.draining(worker)}
        try:
            moves = [
                make_move(node, job.map.nodes[node], job.map.desired, worker, view, "its last move did not help")
                for node, worker in sorted(back.items())
                if job.map.desired.get(node) != worker
            ]
        except RhinoError as error:
            return self._end(trial, Outcome.FAILED, f"{told}; cannot move back: {error}", now, failed=True)
        if not moves or self._handovers.active():
            return self._end(trial, Outcome.FAILED, f"{told}; nothing can move back", now, failed=True)
        plan = self._predict(Plan((PlannedStep(tuple(moves)),), intent="adaptation: back again"), now)
        handover_id = self._name(now)
        self.trial = dataclasses.replace(trial, stage=Stage.RETURNING, handover_id=handover_id)
        self._budget.spend(plan.bytes_to_move, len(moves), now)
        verdict = Verdict(Outcome.RETURNING, told, after, trial.before, trial.planned, plan=plan)
        begun = self._start(handover_id, plan, DEFAULT_DEADLINE_S, view, now, BY)
        return [*self._note(job.job, verdict, now, handover_id), self._persist(now), *begun]

    def _end(self, trial: Trial, outcome: Outcome, why: str, now: float, *, failed: bool = False) -> list[Effect]:
        self.trial = None
        if failed:
            self._cool_downs.failed(trial.origins, now)
        windows = self._windows.get(trial.job)
        if windows is not None and outcome is not Outcome.HELPED:  # its windows show the map that stays
            windows.clear()
        verdict = Verdict(outcome, why)
        return [*self._note(trial.job, verdict, now, trial.handover_id), self._persist(now)]

    def _name(self, now: float) -> str:
        """An id for a handover: unique, for no two begin in the same millisecond."""
        return f"adapt-{round((now + self._offset_s) * 1000)}"

    def _note(self, job: str, verdict: Verdict, now: float, handover_id: str = "") -> list[Effect]:
        moves = verdict.plan.moves if verdict.plan is not None else ()
        return self.decisions.add(
            Decision(
                number=0,
                started_ms=round((now + self._offset_s) * 1000),
                job=job,
                outcome=verdict.outcome,
                why=verdict.why,
                measured=verdict.measured,
                expected=verdict.expected,
                planned=verdict.planned,
                gain_s=verdict.gain_s,
                cost_s=verdict.cost_s,
                bytes_to_move=sum(move.bytes_to_move for move in moves),
                moves=tuple(DecidedMove(move.node.name, move.origin, move.target) for move in moves),
                hot=verdict.hot,
                handover_id=handover_id,
            )
        )

    def _persist(self, now: float) -> Persist:
        spent = self._cool_downs.record(now), self._budget.record(now)
        trial = record_of_trial(self.trial) if self.trial is not None else None
        return Persist(TRIAL_KEY, AdaptationRecord(trial, *spent, dict(self._usual_rows)))

    def _record_usual_rows(self, job: str, now: float) -> list[Effect]:
        """Journals the input rows of a usual batch if they have changed much."""
        usual, known = self._windows[job].usual_rows, self._usual_rows.get(job, 0.0)
        if abs(usual - known) <= ROWS_CHANGE * known:
            return []
        self._usual_rows[job] = usual
        return [self._persist(now)]
