"""Executes handovers: the turns of steps, and the end of a handover (Rhino 4.1; Megaphone 3.3)."""

from __future__ import annotations

from collections.abc import Mapping

from handover_manager.drive.cleanup import Cleanup
from handover_manager.drive.handover import DrivenHandover, Gap, make_steps
from handover_manager.drive.handovers import Handovers
from handover_manager.drive.states import State, Trigger
from handover_manager.drive.step import DrivenStep, Marker
from handover_manager.drive.step_execution import StepExecution
from handover_manager.events import Announce, ChangeGroup, Effect, GroupChanged, Persist
from handover_manager.plan.measurements import measurements_key, record_of_measurements
from handover_manager.queries.jobs import Jobs
from handover_manager.queries.logged import LoggedBatch
from handover_manager.view import ClusterView
from rhino_core.errors import PreconditionError
from rhino_core.ids import VirtualNode
from rhino_model.handovers import Phase, Plan
from rhino_model.strategy import MAX_TRANSFERS


class Execution:
    """Drives the open handovers of the table. Methods return effects, to be executed in order."""

    def __init__(self, jobs: Jobs, handovers: Handovers, wall_offset_s: float) -> None:
        self._jobs = jobs
        self._handovers = handovers
        self._step_execution = StepExecution(jobs, wall_offset_s)
        self._cleanup = Cleanup(jobs, handovers)

    def start(
        self, handover_id: str, plan: Plan, deadline_s: float, view: ClusterView, now: float, by: str = ""
    ) -> list[Effect]:
        """Journals the intent. Begins at once, unless the strategy asks for a later start. `by`: the requester."""
        started_ms = self._step_execution.wall_ms(now)
        handover = DrivenHandover(handover_id, plan, deadline_s, started_ms, make_steps(handover_id, plan), by=by)
        handover.begin_at = now + max(plan.strategy.start_at_ms - started_ms, 0) / 1000
        handover.steps[0].deadline = handover.begin_at + deadline_s
        return [*self._handovers.add(handover), *self._drive(handover, view, now)]

    def cancel(self, handover_id: str, view: ClusterView, now: float) -> list[Effect]:
        """Cancels all steps before their marker. Confirmed steps stand, and a step past its marker continues.

        Raises PreconditionError if no step is left before its marker: the targets may be writing already.
        """
        handover = self._handovers.find(handover_id)
        rest = _unmarked(handover)
        if not rest:
            raise PreconditionError(
                f"handover {handover_id} is {handover.phase.value}: only before its last marker can it be cancelled; "
                "to go back, hand over in the other direction"
            )
        for step in rest:
            self._step_execution.end(step, Trigger.CANCEL, "cancelled by request", view, now)
        return self._closed(handover, now)

    def shorten(self, worker: str, view: ClusterView) -> list[Effect]:
        """Removes from a worker's groups the replacements that they got while it was draining.

        Naming the owner again cuts the chain.
        """
        busy = self._handovers.busy_groups()
        longer = [seen for group, seen in sorted(view.groups.items()) if seen.has(worker) and view.is_longer(seen)]
        return [ChangeGroup("", s.group.group, make_owner=s.owner) for s in longer if s.group.group not in busy]

    def restart(self, view: ClusterView, now: float) -> list[Effect]:
        """Resumes the restored handovers.

        Steps before their marker are rolled back. Steps past it continue to wait for confirmation. Ended steps stand.
        """
        effects: list[Effect] = []
        for handover in self._handovers.open():
            early = _unmarked(handover)
            for step in early:
                self._step_execution.end(step, Trigger.RESTART, "the manager restarted before the marker", view, now)
            for step in handover.steps:
                if step.state.final or step in early:
                    continue
                step.advance(Trigger.RESTART)
                if step.state is State.MARKED:
                    step.deadline = now + handover.deadline_s
                effects += self._step_execution.resume(step, view)
            if early:
                effects = [*self._closed(handover, now), *effects]
        return effects

    def observe(self, view: ClusterView, now: float) -> list[Effect]:
        """Advances every handover as far as the cluster allows."""
        effects: list[Effect] = self.expire(view, now)
        for handover in self._handovers.open():
            if not handover.ended:
                effects += self._drive(handover, view, now)
            effects += self._cleanup.clean_up(handover, view)
        return effects

    def deadlines(self) -> list[float]:
        """Times at which a step begins, may be marked, or ends at the latest."""
        times: list[float] = []
        for handover in self._handovers.active():
            step = handover.current
            if step is not None:
                times += [at for at in (handover.begin_at, handover.gap and handover.gap.until, step.deadline) if at]
        return times

    def expire(self, view: ClusterView, now: float) -> list[Effect]:
        """Rolls back steps past their deadline. A step whose copies came nearer since gets it again."""
        effects: list[Effect] = []
        for handover in self._handovers.active():
            step = handover.current
            if step is None or step.deadline is None or now < step.deadline:
                continue
            if step.state is State.PREPARING and step.copies_nearer(view):
                step.deadline = now + handover.deadline_s
                continue
            reason = self._overdue(handover, step)
            if step.state is State.PLANNED:
                self._step_execution.begin(step, view, now)
            released = self._step_execution.end(step, Trigger.DEADLINE, reason, view, now)
            effects += [*self._step_ended(handover, step, view, now), *released]
        return effects

    def _overdue(self, handover: DrivenHandover, step: DrivenStep) -> str:
        """The reason for the rollback of a step past its deadline, for people."""
        waiting = ", ".join(node.name for node in sorted(step.waiting_for))
        what = "prepared" if step.marker is None else f"written by worker {', '.join(step.targets)}"
        reason = f"deadline of {handover.deadline_s:g} s: virtual nodes {waiting} not {what}"
        if not waiting:
            reason = f"deadline of {handover.deadline_s:g} s: the gap before its marker is not over"
        if step.marker is not None and self._unlogged(step, step.marker):
            reason += "; no batch was logged since the marker, and no driver has said that none runs"
        if step.changes.last_error:
            reason += f" (last error: {step.changes.last_error})"
        if step.marker is None and step.missing_bytes:
            reason += f"; {step.missing_bytes} bytes are not there"
        return reason

    def _unlogged(self, step: DrivenStep, marker: Marker) -> bool:
        """Whether no awaited query has logged a batch since the marker."""
        logged = [self._jobs[job].times.logged_at for job in {node.job for node in step.waiting_for}]
        return all(at is None or (marker.set_at is not None and at < marker.set_at) for at in logged)

    def batch_settled(
        self,
        job: str,
        batch_id: int,
        batch: LoggedBatch,
        actual: Mapping[VirtualNode, str],
        view: ClusterView,
        now: float,
    ) -> list[Effect]:
        """Confirms steps with a batch logged after the marker and written by the targets (Rhino 4.1, step 4)."""
        effects: list[Effect] = []
        for handover in self._handovers.active():
            step = handover.current
            if step and self._step_execution.batch_settled(step, job, batch_id, batch, actual, now):
                effects += self._after_progress(handover, step, view, now)
        return effects

    def query_idle(self, job: str, view: ClusterView, now: float) -> list[Effect]:
        """Confirms steps of an idle query."""
        effects: list[Effect] = []
        for handover in self._handovers.active():
            step = handover.current
            if step and self._step_execution.query_idle(step, job, now):
                effects += self._after_progress(handover, step, view, now)
        return effects

    def _after_progress(
        self, handover: DrivenHandover, step: DrivenStep, view: ClusterView, now: float
    ) -> list[Effect]:
        if not step.state.ended:
            return [Announce(handover.handover_id)]
        return [*self._step_ended(handover, step, view, now), *self._drive(handover, view, now)]

    def group_changed(self, event: GroupChanged, view: ClusterView, now: float) -> list[Effect]:
        """Handles the answer to a ChangeGroup."""
        handover = self._handovers.get(event.handover_id)
        step = handover.step_of(event.group) if handover is not None else None
        if handover is None or step is None:
            return []  # ended and dropped meanwhile
        before = step.state
        self._step_execution.group_changed(step, event, view, now)
        return self._step_ended(handover, step, view, now) if step.state is not before else []

    def _drive(self, handover: DrivenHandover, view: ClusterView, now: float) -> list[Effect]:
        """Prepares the current step and marks it when possible. While it settles, prepares the next one."""
        effects: list[Effect] = []
        step = handover.current
        if step is None or now < handover.begin_at:
            return effects
        if step.marker is None:
            effects += self._prepare(handover, step, view, now)
            if step.state.ended or step.waiting_for or not self._may_mark(handover, now):
                return effects
            pushes = self._step_execution.mark(step, view, now)
            effects += [*self._handovers.record(handover), *pushes]
        else:
            redirected = len(step.redirected)
            released = self._step_execution.watch_targets(step, step.marker, view, now)
            if step.state.ended:
                return [*effects, *self._step_ended(handover, step, view, now), *released]
            if len(step.redirected) > redirected:
                effects += [*self._handovers.record(handover), *released]
        following = handover.steps[handover.steps.index(step) + 1 :]
        if following and not following[0].state.ended:
            effects += self._prepare(handover, following[0], view, now)
        return effects

    def _prepare(self, handover: DrivenHandover, step: DrivenStep, view: ClusterView, now: float) -> list[Effect]:
        begun = step.state is State.PLANNED
        if begun:
            self._step_execution.begin(step, view, now)
        waiting = set(step.waiting_for)
        others = sum(self._step_execution.copies(s, view) for s in handover.steps if s is not step)
        room = (handover.plan.strategy.max_transfers or MAX_TRANSFERS) - others
        joins = self._step_execution.prepare(handover.handover_id, step, room, view, now)
        if step.state.ended:
            return self._step_ended(handover, step, view, now)
        if begun:
            return [*self._handovers.record(handover), *joins]
        return [Announce(handover.handover_id), *joins] if waiting != step.waiting_for else joins

    def _may_mark(self, handover: DrivenHandover, now: float) -> bool:
        """Whether the gap after the confirmation of the step before is over, in seconds and in batches."""
        if handover.gap is None:
            return True
        jobs = [(self._jobs[job], due) for job, due in handover.gap.batches.items()]
        return now >= handover.gap.until and all(job.logged.reported >= due or job.idle for job, due in jobs)

    def _step_ended(self, handover: DrivenHandover, step: DrivenStep, view: ClusterView, now: float) -> list[Effect]:
        """Gives the next step its turn after a confirmation. Cancels the remaining steps after any other end."""
        if step.phase is Phase.CONFIRMED:
            self._take_turn(handover, now)
        else:
            reason = f"{step.name} ended {step.phase.value}"
            for rest in _unmarked(handover):
                self._step_execution.end(rest, Trigger.CANCEL, reason, view, now)
        measurements: list[Effect] = []
        closed = self._closed(handover, now)
        if step.phase is Phase.CONFIRMED:
            for job in step.of_job():
                measurements.append(
                    Persist(measurements_key(job), record_of_measurements(self._jobs[job].measurements))
                )
        _, owners = self._cleanup.settle(handover.handover_id, step, view)
        return [*closed, *measurements, *owners]

    def _take_turn(self, handover: DrivenHandover, now: float) -> None:
        following, strategy = handover.current, handover.plan.strategy
        if following is None:
            return
        jobs = following.of_job() if strategy.gap_batches else ()
        batches = {job: self._jobs[job].logged.reported + strategy.gap_batches for job in jobs}
        handover.gap = Gap(now + strategy.gap_s, batches)
        following.deadline = handover.gap.until + handover.deadline_s

    def _closed(self, handover: DrivenHandover, now: float) -> list[Effect]:
        """Journals the handover, with its end if all steps have ended."""
        if not handover.ended or handover.finished_ms is not None:
            return self._handovers.record(handover)
        handover.finished_ms = self._step_execution.wall_ms(now)
        if handover.error is not None:
            for job in handover.plan.jobs:
                self._jobs[job].measurements.errors.append(handover.error)
        return [self._handovers.persist(handover), *self._handovers.record(handover)]


def _unmarked(handover: DrivenHandover) -> list[DrivenStep]:
    """Steps before their marker."""
    return [step for step in handover.steps if step.state in (State.PLANNED, State.PREPARING)]
