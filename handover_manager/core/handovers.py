"""The table of handovers: which step's turn it is, and what ends them (Rhino 4.1; Megaphone 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.core.events import Announce, ChangeGroup, Effect, GroupChanged, Persist
from handover_manager.core.figures import figures_key, figures_to_json
from handover_manager.core.handover import Handover, make_steps
from handover_manager.core.job import LoggedBatch
from handover_manager.core.jobs import Jobs
from handover_manager.core.plan import Plan
from handover_manager.core.records import handover_key, handover_to_json, step_key, step_to_json
from handover_manager.core.step import Phase, Step, Trigger
from handover_manager.core.stepping import Stepping
from handover_manager.core.strategy import MAX_TRANSFERS
from handover_manager.core.view import ClusterView
from rhino.errors import PreconditionError, UnknownError
from rhino.ids import VirtualNode

ENDED_MAX = 1000  # ended handovers that are remembered


class Handovers:
    """All handovers, oldest first. Methods return effects, to be executed in order.

    `wall_offset_s`: wall clock minus monotonic time, for the times that people read.
    """

    def __init__(self, jobs: Jobs, wall_offset_s: float, restored: Iterable[Handover] = ()) -> None:
        self._jobs = jobs
        self._stepping = Stepping(jobs, wall_offset_s)
        self._all = {h.handover_id: h for h in sorted(restored, key=lambda h: (h.started_ms, h.handover_id))}

    def find(self, handover_id: str) -> Handover:
        if handover_id not in self._all:
            raise UnknownError(f"handover {handover_id!r}: unknown")
        return self._all[handover_id]

    def all(self) -> list[Handover]:
        return list(self._all.values())

    def active(self) -> list[Handover]:
        return [h for h in self._all.values() if not h.ended]

    def _open(self) -> list[tuple[Handover, Step]]:
        """Steps that have not ended."""
        return [(h, step) for h in self.active() for step in h.steps if not step.phase.ended]

    def running(self) -> dict[VirtualNode, str]:
        """Virtual nodes under a step that has not ended, with the handover's id."""
        return {move.node: h.handover_id for h, step in self._open() for move in step.moves}

    def arriving(self) -> dict[str, str]:
        """Workers to which virtual nodes are on their way, with the handover's id."""
        return {move.target: h.handover_id for h, step in self._open() for move in step.moves}

    def start(self, handover_id: str, plan: Plan, deadline_s: float, view: ClusterView, now: float) -> list[Effect]:
        """Journals the intent and begins, unless the start lies ahead."""
        started_ms = self._stepping.wall_ms(now)
        handover = Handover(handover_id, plan, deadline_s, started_ms, make_steps(handover_id, plan))
        handover.begin_at = now + max(plan.strategy.start_at_ms - started_ms, 0) / 1000
        handover.steps[0].deadline = handover.begin_at + deadline_s
        handover.steps[0].waiting_for = handover.steps[0].nodes
        self._all[handover_id] = handover
        return [*self._prune(), *self._note(handover), *self._drive(handover, view, now)]

    def cancel(self, handover_id: str, view: ClusterView, now: float) -> list[Effect]:
        """No further marker: confirmed steps stand, one past its marker goes on to be confirmed, the rest is cancelled.

        Raises PreconditionError when there is no rest: the targets may be writing already.
        """
        handover = self.find(handover_id)
        rest = [step for step in handover.steps if step.phase in (Phase.PLANNED, Phase.PREPARING)]
        if not rest:
            raise PreconditionError(
                f"handover {handover_id} is {handover.phase.value}: only before its last marker can it be cancelled; "
                "to go back, hand over in the other direction"
            )
        for step in rest:
            self._stepping.end(step, Trigger.CANCEL, "cancelled by request", view, now)
        return self._closed(handover, now)

    def check_none(self, job: str) -> None:
        """Raises PreconditionError while a handover of the job is under way."""
        for handover in self.active():
            if job in handover.plan.jobs:
                raise PreconditionError(f"job {job}: handover {handover.handover_id} is under way: cancel it or wait")

    def forget(self, job: str) -> list[Effect]:
        """What is remembered of the job's ended handovers goes."""
        return self._gone([h.handover_id for h in self.all() if job in h.plan.jobs])

    def shorten(self, worker: str, view: ClusterView) -> list[Effect]:
        """The worker is not being drained any more: its chains lose the replacements that they got for it. Naming the
        owner again cuts them."""
        busy = {group for _, step in self._open() for group in step.target_of_group}
        longer = [seen for group, seen in sorted(view.groups.items()) if seen.has(worker) and view.is_longer(seen)]
        return [ChangeGroup("", s.group.group, make_owner=s.owner) for s in longer if s.group.group not in busy]

    def restart(self, view: ClusterView, now: float) -> list[Effect]:
        """After a restart: steps before their marker are rolled back, after it still to be confirmed; others stand."""
        effects: list[Effect] = []
        for handover in self.all():
            early = [step for step in handover.steps if step.phase in (Phase.PLANNED, Phase.PREPARING)]
            for step in early:
                self._stepping.end(step, Trigger.RESTART, "the manager restarted before the marker", view, now)
            for step in handover.steps:
                if step.phase is Phase.MARKED:
                    step.advance(Trigger.RESTART)
                    step.deadline = now + handover.deadline_s
                if step.phase is Phase.MARKED or step.settling:
                    effects += self._stepping.resume(step, view)
            if early:
                effects = [*self._closed(handover, now), *effects]
        return effects

    def observe(self, view: ClusterView, now: float) -> list[Effect]:
        """Takes every handover as far as the cluster now allows."""
        effects: list[Effect] = self.expire(view, now)
        for handover in self.all():
            if not handover.ended:
                effects += self._drive(handover, view, now)
            effects += self._after(handover, view)
        return effects

    def expire(self, view: ClusterView, now: float) -> list[Effect]:
        """Rolls back the step that has passed its deadline, so that every handover ends within a known time."""
        effects: list[Effect] = []
        for handover in self.active():
            step = handover.current
            if step is None or step.deadline is None or now < step.deadline:
                continue
            waiting = ", ".join(node.name for node in sorted(step.waiting_for))
            what = "prepared" if step.phase is not Phase.MARKED else f"written by worker {', '.join(step.targets)}"
            reason = f"deadline of {handover.deadline_s:g} s: virtual nodes {waiting} not {what}"
            if not waiting:
                reason = f"deadline of {handover.deadline_s:g} s: the gap before its marker is not over"
            if step.phase is Phase.MARKED and self._unlogged(step):
                reason += "; no batch was logged since the marker, and no driver has said that none runs"
            if step.last_error:
                reason += f" (last error: {step.last_error})"
            if step.phase is Phase.PLANNED:
                self._stepping.begin(step, view, now)
            released = self._stepping.end(step, Trigger.DEADLINE, reason, view, now)
            effects += [*self._step_ended(handover, step, view, now), *released]
        return effects

    def _unlogged(self, step: Step) -> bool:
        """None of the queries that it waits for has logged a batch since the marker."""
        logged = [self._jobs[job].logged_at for job in {node.job for node in step.waiting_for}]
        return all(at is None or at < step.marked_at for at in logged)

    def batch_settled(
        self,
        job: str,
        batch_id: int,
        batch: LoggedBatch,
        actual: Mapping[VirtualNode, str],
        view: ClusterView,
        now: float,
    ) -> list[Effect]:
        """A batch logged after the marker and written by the targets confirms (Rhino 4.1, step 4)."""
        effects: list[Effect] = []
        for handover in self.active():
            step = handover.current
            if step and self._stepping.batch_settled(step, job, batch_id, batch, actual, view, now):
                effects += self._went_on(handover, step, view, now)
        return effects

    def query_idle(self, job: str, view: ClusterView, now: float) -> list[Effect]:
        """No batch of the query runs, and the next one goes by the map that its driver has: the marker stands."""
        effects: list[Effect] = []
        for handover in self.active():
            step = handover.current
            if step and self._stepping.query_idle(step, job, view, now):
                effects += self._went_on(handover, step, view, now)
        return effects

    def _went_on(self, handover: Handover, step: Step, view: ClusterView, now: float) -> list[Effect]:
        if not step.phase.ended:
            return [Announce(handover.handover_id)]
        return [*self._step_ended(handover, step, view, now), *self._drive(handover, view, now)]

    def group_changed(self, event: GroupChanged, view: ClusterView, now: float) -> list[Effect]:
        """The answer to a ChangeGroup."""
        handover = self._all.get(event.handover_id)
        step = handover.step_of(event.group) if handover is not None else None
        if handover is None or step is None:
            return []  # ended and forgotten meanwhile
        before = step.phase
        self._stepping.group_changed(step, event, view, now)
        return self._step_ended(handover, step, view, now) if step.phase is not before else []

    def next_deadline(self) -> float | None:
        """When a Tick or a view has something to do by itself."""
        due = [s.deadline for h in self.active() if (s := h.current) is not None and s.deadline is not None]
        return min(due, default=None)

    def _drive(self, handover: Handover, view: ClusterView, now: float) -> list[Effect]:
        """Prepares the current step, and the next one while the current one settles; marks when it may."""
        effects: list[Effect] = []
        step = handover.current
        if step is None or now < handover.begin_at:
            return effects
        if step.phase is not Phase.MARKED:
            effects += self._prepare(handover, step, view, now)
            if step.phase.ended or step.waiting_for or not self._may_mark(handover, now):
                return effects
            pushes = self._stepping.mark(step, view, now)
            effects += [*self._note(handover), *pushes]
        else:
            redirected = len(step.redirected)
            released = self._stepping.watch_targets(step, view, now)
            if step.phase.ended:
                return [*effects, *self._step_ended(handover, step, view, now), *released]
            if len(step.redirected) > redirected:
                effects += [*self._note(handover), *released]
        following = handover.steps[handover.steps.index(step) + 1 :]
        if following and not following[0].phase.ended:
            effects += self._prepare(handover, following[0], view, now)
        return effects

    def _prepare(self, handover: Handover, step: Step, view: ClusterView, now: float) -> list[Effect]:
        begun = step.phase is Phase.PLANNED
        if begun:
            self._stepping.begin(step, view, now)
        waiting = set(step.waiting_for)
        others = sum(self._stepping.copies(s, view) for s in handover.steps if s is not step)
        room = (handover.plan.strategy.max_transfers or MAX_TRANSFERS) - others
        joins = self._stepping.prepare(handover.handover_id, step, room, view, now)
        if step.phase.ended:
            return self._step_ended(handover, step, view, now)
        if begun:
            return [*self._note(handover), *joins]
        return [Announce(handover.handover_id), *joins] if waiting != step.waiting_for else joins

    def _may_mark(self, handover: Handover, now: float) -> bool:
        """The gap after the confirmation of the step before is over, in seconds and in batches."""
        jobs = [(self._jobs[job], due) for job, due in handover.ready_after.items()]
        batches = all(job.reported >= due or job.idle for job, due in jobs)
        return now >= handover.ready_at and batches

    def _step_ended(self, handover: Handover, step: Step, view: ClusterView, now: float) -> list[Effect]:
        """A confirmed step gives the next one its turn; any other end cancels the rest."""
        if step.phase is Phase.CONFIRMED:
            self._take_turn(handover, now)
        else:
            reason = f"{step.name} ended {step.phase.value}"
            for rest in handover.steps:
                if rest.phase in (Phase.PLANNED, Phase.PREPARING):
                    self._stepping.end(rest, Trigger.CANCEL, reason, view, now)
        figures: list[Effect] = []
        closed = self._closed(handover, now)
        if step.phase is Phase.CONFIRMED:
            for job in step.of_job():
                figures.append(Persist(figures_key(job), figures_to_json(self._jobs[job].figures)))
        _, owners = self._stepping.settle(handover.handover_id, step, view)
        return [*closed, *figures, *owners]

    def _take_turn(self, handover: Handover, now: float) -> None:
        following, strategy = handover.current, handover.plan.strategy
        if following is None:
            return
        handover.ready_at = now + strategy.gap_s
        handover.ready_after = {
            job: self._jobs[job].reported + strategy.gap_batches for job in following.of_job() if strategy.gap_batches
        }
        following.deadline = handover.ready_at + handover.deadline_s

    def _closed(self, handover: Handover, now: float) -> list[Effect]:
        """Journals; the end of the whole handover too, when all steps have ended."""
        if handover.ended and not handover.finished_ms:
            handover.finished_ms = self._stepping.wall_ms(now)
            if handover.error is not None:
                for job in handover.plan.jobs:
                    self._jobs[job].figures.errors.append(handover.error)
        return self._note(handover)

    def _after(self, handover: Handover, view: ClusterView) -> list[Effect]:
        """Settles confirmed steps, unwinds those that were given up."""
        effects: list[Effect] = []
        for step in handover.steps:
            if step.settling:
                changed, settled = self._stepping.settle(handover.handover_id, step, view)
                effects += [*(self._note(handover) if changed else ()), *settled]
            if step.unwinding:
                busy = {group for _, other in self._open() for group in other.target_of_group}
                before = set(step.unwinding)
                shortened = self._stepping.unwind(handover.handover_id, step, busy, view)
                effects += [*(self._note(handover) if step.unwinding != before else ()), *shortened]
        return effects

    def _note(self, handover: Handover) -> list[Effect]:
        """Journals what has changed: the intent at the start and the end, and steps."""
        effects: list[Effect] = []
        if handover.noted_ms != handover.finished_ms:
            handover.noted_ms = handover.finished_ms
            effects.append(Persist(handover_key(handover.handover_id), handover_to_json(handover)))
        for number, step in enumerate(handover.steps, 1):
            if step.noted is None and step.phase is Phase.PLANNED:
                continue
            record = step_to_json(step)
            if record != step.noted:
                step.noted = record
                effects.append(Persist(step_key(handover.handover_id, number), record))
        return [*effects, Announce(handover.handover_id)]

    def _gone(self, handover_ids: Iterable[str]) -> list[Effect]:
        """Out of memory and journal."""
        effects: list[Effect] = []
        for handover_id in handover_ids:
            handover = self._all.pop(handover_id)
            effects.append(Persist(handover_key(handover_id), None))
            numbers = [n for n, step in enumerate(handover.steps, 1) if step.noted is not None]
            effects += [Persist(step_key(handover_id, number), None) for number in numbers]
        return effects

    def _prune(self) -> list[Effect]:
        ended = [h for h in self._all.values() if h.ended and not h.settling and not h.unwinding]
        return self._gone([h.handover_id for h in ended[: max(len(ended) - ENDED_MAX, 0)]])

    def check_invariants(self) -> None:
        nodes = [move.node for _, step in self._open() for move in step.moves]
        assert len(nodes) == len(set(nodes)), "a virtual node is under two handovers"
        for handover in self._all.values():
            handover.check_invariants()
