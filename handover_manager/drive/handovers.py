"""The table of handovers: which step has its turn, and what ends a handover (Rhino 4.1; Megaphone 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.drive.handover import Gap, Handover, make_steps
from handover_manager.drive.records import handover_key, record_of_handover, record_of_step, step_key
from handover_manager.drive.states import Phase, State, Trigger
from handover_manager.drive.step import Marker, Step
from handover_manager.drive.stepping import Stepping
from handover_manager.events import Announce, ChangeGroup, Effect, GroupChanged, Persist
from handover_manager.plan.measurements import figures_key, record_of_figures
from handover_manager.plan.planner import Plan
from handover_manager.plan.strategy import MAX_TRANSFERS
from handover_manager.queries.job import LoggedBatch
from handover_manager.queries.jobs import Jobs
from handover_manager.view import ClusterView
from rhino_core.errors import PreconditionError, UnknownError
from rhino_core.ids import VirtualNode

ENDED_MAX = 1000  # ended handovers that are kept


class Handovers:
    """All handovers, oldest first. Methods return effects, to be executed in order.

    `wall_offset_s` is wall clock minus monotonic time, for the times shown to people.
    """

    def __init__(self, jobs: Jobs, wall_offset_s: float, restored: Iterable[Handover] = ()) -> None:
        self._jobs = jobs
        self._stepping = Stepping(jobs, wall_offset_s)
        self._all = {h.handover_id: h for h in sorted(restored, key=lambda h: (h.started_ms, h.handover_id))}
        self._open = {name: h for name, h in self._all.items() if not h.final}  # a subset, for there may be many
        self._steps = {  # records of steps by key, as journalled
            step_key(name, number): record_of_step(step)
            for name, h in self._all.items()
            for number, step in enumerate(h.steps, 1)
            if step.state is not State.PLANNED
        }

    def find(self, handover_id: str) -> Handover:
        if handover_id not in self._all:
            raise UnknownError(f"handover {handover_id!r}: unknown")
        return self._all[handover_id]

    def all(self) -> list[Handover]:
        return list(self._all.values())

    def active(self) -> list[Handover]:
        return [h for h in self._open.values() if not h.ended]

    def _open_steps(self) -> list[tuple[Handover, Step]]:
        """Steps that have not ended."""
        return [(h, step) for h in self.active() for step in h.steps if not step.state.ended]

    def running(self) -> dict[VirtualNode, str]:
        """Virtual nodes in a step that has not ended, with the handover's id."""
        return {move.node: h.handover_id for h, step in self._open_steps() for move in step.moves}

    def arriving(self) -> dict[str, str]:
        """Targets of steps that have not ended, with the handover's id."""
        return {move.target: h.handover_id for h, step in self._open_steps() for move in step.moves}

    def start(self, handover_id: str, plan: Plan, deadline_s: float, view: ClusterView, now: float) -> list[Effect]:
        """Journals the intent. Begins at once, unless the strategy asks for a later start."""
        started_ms = self._stepping.wall_ms(now)
        handover = Handover(handover_id, plan, deadline_s, started_ms, make_steps(handover_id, plan))
        handover.begin_at = now + max(plan.strategy.start_at_ms - started_ms, 0) / 1000
        handover.steps[0].deadline = handover.begin_at + deadline_s
        self._all[handover_id] = self._open[handover_id] = handover
        intent = Persist(handover_key(handover_id), record_of_handover(handover))
        return [*self._prune(), intent, Announce(handover_id), *self._drive(handover, view, now)]

    def cancel(self, handover_id: str, view: ClusterView, now: float) -> list[Effect]:
        """Cancels all steps before their marker. Confirmed steps stand, and a step past its marker continues.

        Raises PreconditionError if no step is left before its marker: the targets may be writing already.
        """
        handover = self.find(handover_id)
        rest = _unmarked(handover)
        if not rest:
            raise PreconditionError(
                f"handover {handover_id} is {handover.phase.value}: only before its last marker can it be cancelled; "
                "to go back, hand over in the other direction"
            )
        for step in rest:
            self._stepping.end(step, Trigger.CANCEL, "cancelled by request", view, now)
        return self._closed(handover, now)

    def moved_jobs(self) -> set[str]:
        """Jobs of which a handover is in progress."""
        return {job for handover in self.active() for job in handover.plan.jobs}

    def check_none(self, job: str) -> None:
        """Raises PreconditionError while a handover of the job is in progress."""
        for handover in self.active():
            if job in handover.plan.jobs:
                raise PreconditionError(f"job {job}: handover {handover.handover_id} is under way: cancel it or wait")

    def forget(self, job: str) -> list[Effect]:
        """Drops the handovers of the job, which have all ended."""
        return self._gone([h.handover_id for h in self.all() if job in h.plan.jobs])

    def shorten(self, worker: str, view: ClusterView) -> list[Effect]:
        """Removes the replacements that the groups of a worker got while it was draining.

        Naming the owner again cuts the chain.
        """
        busy = {group for _, step in self._open_steps() for group in step.target_of_group}
        longer = [seen for group, seen in sorted(view.groups.items()) if seen.has(worker) and view.is_longer(seen)]
        return [ChangeGroup("", s.group.group, make_owner=s.owner) for s in longer if s.group.group not in busy]

    def restart(self, view: ClusterView, now: float) -> list[Effect]:
        """Resumes the restored handovers.

        Steps before their marker are rolled back. Steps past it continue to wait for confirmation. Ended steps stand.
        """
        effects: list[Effect] = []
        for handover in list(self._open.values()):
            early = _unmarked(handover)
            for step in early:
                self._stepping.end(step, Trigger.RESTART, "the manager restarted before the marker", view, now)
            for step in handover.steps:
                if step.state.final or step in early:
                    continue
                step.advance(Trigger.RESTART)
                if step.state is State.MARKED:
                    step.deadline = now + handover.deadline_s
                effects += self._stepping.resume(step, view)
            if early:
                effects = [*self._closed(handover, now), *effects]
        return effects

    def observe(self, view: ClusterView, now: float) -> list[Effect]:
        """Advances every handover as far as the cluster allows."""
        effects: list[Effect] = self.expire(view, now)
        for handover in list(self._open.values()):
            if not handover.ended:
                effects += self._drive(handover, view, now)
            effects += self._clean_up(handover, view)
        return effects

    def deadlines(self) -> list[float]:
        """Times at which a step begins, may be marked, or ends at the latest."""
        times: list[float] = []
        for handover in self.active():
            step = handover.current
            if step is not None:
                times += [at for at in (handover.begin_at, handover.gap and handover.gap.until, step.deadline) if at]
        return times

    def expire(self, view: ClusterView, now: float) -> list[Effect]:
        """Rolls back steps that have passed their deadline, so that every handover ends within a known time."""
        effects: list[Effect] = []
        for handover in self.active():
            step = handover.current
            if step is None or step.deadline is None or now < step.deadline:
                continue
            waiting = ", ".join(node.name for node in sorted(step.waiting_for))
            what = "prepared" if step.marker is None else f"written by worker {', '.join(step.targets)}"
            reason = f"deadline of {handover.deadline_s:g} s: virtual nodes {waiting} not {what}"
            if not waiting:
                reason = f"deadline of {handover.deadline_s:g} s: the gap before its marker is not over"
            if step.marker is not None and self._unlogged(step, step.marker):
                reason += "; no batch was logged since the marker, and no driver has said that none runs"
            if step.changes.last_error:
                reason += f" (last error: {step.changes.last_error})"
            if step.state is State.PLANNED:
                self._stepping.begin(step, view, now)
            released = self._stepping.end(step, Trigger.DEADLINE, reason, view, now)
            effects += [*self._step_ended(handover, step, view, now), *released]
        return effects

    def _unlogged(self, step: Step, marker: Marker) -> bool:
        """Whether no query that the step waits for has logged a batch since the marker."""
        logged = [self._jobs[job].logged_at for job in {node.job for node in step.waiting_for}]
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
        """Confirms steps whose targets wrote a batch that was logged after the marker (Rhino 4.1, step 4)."""
        effects: list[Effect] = []
        for handover in self.active():
            step = handover.current
            if step and self._stepping.batch_settled(step, job, batch_id, batch, actual, view, now):
                effects += self._went_on(handover, step, view, now)
        return effects

    def query_idle(self, job: str, view: ClusterView, now: float) -> list[Effect]:
        """Confirms steps of an idle query.

        No batch of it runs, and the next one will use the driver's map, which has the marker.
        """
        effects: list[Effect] = []
        for handover in self.active():
            step = handover.current
            if step and self._stepping.query_idle(step, job, view, now):
                effects += self._went_on(handover, step, view, now)
        return effects

    def _went_on(self, handover: Handover, step: Step, view: ClusterView, now: float) -> list[Effect]:
        if not step.state.ended:
            return [Announce(handover.handover_id)]
        return [*self._step_ended(handover, step, view, now), *self._drive(handover, view, now)]

    def group_changed(self, event: GroupChanged, view: ClusterView, now: float) -> list[Effect]:
        """Handles the answer to a ChangeGroup."""
        handover = self._all.get(event.handover_id)
        step = handover.step_of(event.group) if handover is not None else None
        if handover is None or step is None:
            return []  # ended and dropped meanwhile
        before = step.state
        self._stepping.group_changed(step, event, view, now)
        return self._step_ended(handover, step, view, now) if step.state is not before else []

    def _drive(self, handover: Handover, view: ClusterView, now: float) -> list[Effect]:
        """Prepares the current step and marks it when possible. While it settles, prepares the next one."""
        effects: list[Effect] = []
        step = handover.current
        if step is None or now < handover.begin_at:
            return effects
        if step.marker is None:
            effects += self._prepare(handover, step, view, now)
            if step.state.ended or step.waiting_for or not self._may_mark(handover, now):
                return effects
            pushes = self._stepping.mark(step, view, now)
            effects += [*self._record(handover), *pushes]
        else:
            redirected = len(step.redirected)
            released = self._stepping.watch_targets(step, step.marker, view, now)
            if step.state.ended:
                return [*effects, *self._step_ended(handover, step, view, now), *released]
            if len(step.redirected) > redirected:
                effects += [*self._record(handover), *released]
        following = handover.steps[handover.steps.index(step) + 1 :]
        if following and not following[0].state.ended:
            effects += self._prepare(handover, following[0], view, now)
        return effects

    def _prepare(self, handover: Handover, step: Step, view: ClusterView, now: float) -> list[Effect]:
        begun = step.state is State.PLANNED
        if begun:
            self._stepping.begin(step, view, now)
        waiting = set(step.waiting_for)
        others = sum(self._stepping.copies(s, view) for s in handover.steps if s is not step)
        room = (handover.plan.strategy.max_transfers or MAX_TRANSFERS) - others
        joins = self._stepping.prepare(handover.handover_id, step, room, view, now)
        if step.state.ended:
            return self._step_ended(handover, step, view, now)
        if begun:
            return [*self._record(handover), *joins]
        return [Announce(handover.handover_id), *joins] if waiting != step.waiting_for else joins

    def _may_mark(self, handover: Handover, now: float) -> bool:
        """Whether the gap after the confirmation of the step before is over, in seconds and in batches."""
        if handover.gap is None:
            return True
        jobs = [(self._jobs[job], due) for job, due in handover.gap.batches.items()]
        return now >= handover.gap.until and all(job.reported >= due or job.idle for job, due in jobs)

    def _step_ended(self, handover: Handover, step: Step, view: ClusterView, now: float) -> list[Effect]:
        """Gives the next step its turn after a confirmation. Cancels the remaining steps after any other end."""
        if step.phase is Phase.CONFIRMED:
            self._take_turn(handover, now)
        else:
            reason = f"{step.name} ended {step.phase.value}"
            for rest in _unmarked(handover):
                self._stepping.end(rest, Trigger.CANCEL, reason, view, now)
        figures: list[Effect] = []
        closed = self._closed(handover, now)
        if step.phase is Phase.CONFIRMED:
            for job in step.of_job():
                figures.append(Persist(figures_key(job), record_of_figures(self._jobs[job].figures)))
        _, owners = self._stepping.settle(handover.handover_id, step, view)
        return [*closed, *figures, *owners]

    def _take_turn(self, handover: Handover, now: float) -> None:
        following, strategy = handover.current, handover.plan.strategy
        if following is None:
            return
        jobs = following.of_job() if strategy.gap_batches else ()
        batches = {job: self._jobs[job].reported + strategy.gap_batches for job in jobs}
        handover.gap = Gap(now + strategy.gap_s, batches)
        following.deadline = handover.gap.until + handover.deadline_s

    def _closed(self, handover: Handover, now: float) -> list[Effect]:
        """Journals the handover, with its end if all steps have ended."""
        if not handover.ended or handover.finished_ms is not None:
            return self._record(handover)
        handover.finished_ms = self._stepping.wall_ms(now)
        if handover.error is not None:
            for job in handover.plan.jobs:
                self._jobs[job].figures.errors.append(handover.error)
        return [Persist(handover_key(handover.handover_id), record_of_handover(handover)), *self._record(handover)]

    def _clean_up(self, handover: Handover, view: ClusterView) -> list[Effect]:
        """Changes the groups of ended steps: settles confirmed steps, and unwinds those that were given up."""
        effects: list[Effect] = []
        for step in handover.steps:
            if step.settling:
                changed, settled = self._stepping.settle(handover.handover_id, step, view)
                effects += [*(self._record(handover) if changed else ()), *settled]
            if step.unwinding:
                busy = {group for _, other in self._open_steps() for group in other.target_of_group}
                before = set(step.unwinding)
                shortened = self._stepping.unwind(handover.handover_id, step, busy, view)
                effects += [*(self._record(handover) if step.unwinding != before else ()), *shortened]
            step.clean()
        if handover.final:
            self._open.pop(handover.handover_id, None)
        return effects

    def _record(self, handover: Handover) -> list[Effect]:
        """Journals the steps that have changed, and announces the handover."""
        effects: list[Effect] = []
        for number, step in enumerate(handover.steps, 1):
            key, record = step_key(handover.handover_id, number), record_of_step(step)
            if step.state is not State.PLANNED and record != self._steps.get(key):
                self._steps[key] = record
                effects.append(Persist(key, record))
        return [*effects, Announce(handover.handover_id)]

    def _gone(self, handover_ids: Iterable[str]) -> list[Effect]:
        """Removes handovers from memory and from the journal."""
        effects: list[Effect] = []
        for handover_id in handover_ids:
            handover = self._all.pop(handover_id)
            self._open.pop(handover_id, None)
            keys = [step_key(handover_id, number) for number in range(1, len(handover.steps) + 1)]
            journalled = [key for key in keys if self._steps.pop(key, None) is not None]
            effects += [Persist(handover_key(handover_id), None), *(Persist(key, None) for key in journalled)]
        return effects

    def _prune(self) -> list[Effect]:
        ended = [name for name, h in self._all.items() if name not in self._open or h.final]
        return self._gone(ended[: max(len(ended) - ENDED_MAX, 0)])

    def check_invariants(self) -> None:
        nodes = [move.node for _, step in self._open_steps() for move in step.moves]
        assert len(nodes) == len(set(nodes)), "a virtual node is under two handovers"
        assert self._open.items() <= self._all.items(), "a handover that was dropped is driven"
        for handover in self._all.values():
            assert handover.final or handover.handover_id in self._open, handover
            handover.check_invariants()


def _unmarked(handover: Handover) -> list[Step]:
    """Steps before their marker."""
    return [step for step in handover.steps if step.state in (State.PLANNED, State.PREPARING)]
