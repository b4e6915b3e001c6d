"""Drives one step to its end (Rhino 4.1): prepare, mark, and confirm or give up. `cleanup` does the rest."""

from __future__ import annotations

from collections.abc import Mapping

from handover_manager.drive.cleanup import may_own, release
from handover_manager.drive.states import State, Trigger
from handover_manager.drive.step import DrivenStep, Marker, Outcome, Preparation
from handover_manager.events import ChangeGroup, Effect, GroupChanged
from handover_manager.plan.measurements import CopyMeasurement, StepMeasurement
from handover_manager.queries.jobs import Jobs
from handover_manager.queries.logged import LoggedBatch
from handover_manager.view import ClusterView
from rhino_core.errors import PreconditionError, RhinoError, UnavailableError
from rhino_core.ids import VirtualNode
from rhino_model.handovers import Move

RETRIED: tuple[type[RhinoError], ...] = (UnavailableError, PreconditionError)


class StepExecution:
    """Methods change the step and return effects other than journalling. The caller journals every change of phase."""

    def __init__(self, jobs: Jobs, wall_offset_s: float) -> None:
        self._jobs = jobs
        self._offset_s = wall_offset_s

    def wall_ms(self, now: float) -> int:
        return round((now + self._offset_s) * 1000)

    def begin(self, step: DrivenStep, view: ClusterView, now: float) -> None:
        step.preparation = Preparation(
            now,
            {
                group: seen.stored_bytes.get(target, 0)
                for group, target in step.target_of_group.items()
                if (seen := view.groups.get(group)) is not None and not seen.is_whole(target)
            },
        )
        step.copies_nearer(view)  # from here on
        step.waiting_for = step.nodes
        step.advance(Trigger.BEGIN)

    def prepare(self, handover_id: str, step: DrivenStep, room: int, view: ClusterView, now: float) -> list[Effect]:
        """Asks for the missing joins of targets.

        `room` limits how many virtual nodes may be copied at the same time.
        """
        lost = [target for target in step.targets if not view.reachable(target)]
        if lost:
            self.end(step, Trigger.TARGET_LOST, f"target {', '.join(lost)} was lost before the marker", view, now)
            return []
        if step.preparation is not None:
            step.bytes_moved = max(step.bytes_moved, _received(step, step.preparation, view))
        waiting = [move for move in step.moves if not _is_whole(move, view)]
        step.waiting_for = {move.node for move in waiting}
        if not waiting:
            if step.preparation is not None and step.preparation.whole_at is None:
                step.preparation.whole_at = now
            return []
        copied = [move for move in waiting if _is_copied(move, step, view)]
        fresh = [move for move in waiting if move not in copied][: max(room - len(copied), 0)]
        joins: list[Effect] = []
        for move in [*copied, *fresh]:
            lacking = [seen.group.group for seen in view.known(move.groups()) if not seen.has(move.target)]
            joins += [ChangeGroup(handover_id, group, add_member=move.target) for group in step.changes.ask(lacking)]
        return joins

    def copies(self, step: DrivenStep, view: ClusterView) -> int:
        """Number of virtual nodes of the step that are being copied."""
        if step.state is not State.PREPARING:
            return 0
        return sum(not _is_whole(move, view) and _is_copied(move, step, view) for move in step.moves)

    def mark(self, step: DrivenStep, view: ClusterView, now: float) -> list[Effect]:
        """Sets the marker: a new configuration epoch for every job of the step."""
        step.advance(Trigger.WHOLE)
        step.waiting_for = step.nodes
        step.changes.last_error = ""
        effects: list[Effect] = []
        epochs: dict[str, int] = {}
        for job, moves in sorted(step.of_job().items()):
            effects += self._jobs.pin(job, {move.node: move.target for move in moves}, view)
            epochs[job] = self._jobs[job].map.configuration_epoch
            self._jobs[job].times.watch(step.name)
        step.marker = Marker(epochs, self.wall_ms(now), now)
        return effects

    def resume(self, step: DrivenStep, view: ClusterView) -> list[Effect]:
        """After a restart, makes the targets of a step past its marker desired again until they own the groups."""
        effects: list[Effect] = []
        wanted = [m for m in step.moves if step.state is State.MARKED or step.settling.intersection(m.groups())]
        for move in wanted:
            job = self._jobs[move.node.job]
            job.map.configuration_epoch = max(job.map.configuration_epoch, step.configuration_epochs[job.job])
            if move.node not in step.redirected:
                effects += self._jobs.pin(job.job, {move.node: move.target}, view)
        return effects

    def watch_targets(self, step: DrivenStep, marker: Marker, view: ClusterView, now: float) -> list[Effect]:
        """Redirects virtual nodes with a target lost or dropped from a chain.

        They follow the owners of their groups again.
        """
        lost = [
            move
            for move in step.moves
            if move.node not in marker.redirected
            and (not view.reachable(move.target) or any(not g.has(move.target) for g in view.known(move.groups())))
        ]
        if not lost:
            return []
        effects = release(self._jobs, lost, view)
        successors = ", ".join(
            f"{m.node.name} to {self._jobs[m.node.job].map.desired.get(m.node, 'no worker')}" for m in lost
        )
        gone = ", ".join(sorted({move.target for move in lost}))
        marker.redirected |= {move.node for move in lost}
        step.waiting_for -= marker.redirected
        former = f"{step.reason}; " if step.reason else ""
        step.reason = f"{former}target {gone} was lost after the marker; redirected {successors}"
        if not step.waiting_for:
            self._finish(step, Trigger.TARGET_LOST, now, None)
        return effects

    def batch_settled(
        self,
        step: DrivenStep,
        job: str,
        batch_id: int,
        batch: LoggedBatch,
        actual: Mapping[VirtualNode, str],
        now: float,
    ) -> bool:
        """Confirms virtual nodes with a batch logged after the marker and written by their targets (Rhino 4.1, step 4).

        Returns whether anything has changed.
        """
        if not _is_marked(step, job, batch.configuration_epoch):
            return False
        target_of = step.target_of
        written = {node for node in step.waiting_for if actual.get(node) == target_of[node]}
        return self._in_place(step, written, Trigger.WRITTEN, now, batch_id)

    def query_idle(self, step: DrivenStep, job: str, now: float) -> bool:
        """Confirms the virtual nodes of an idle query.

        No batch of it runs, and the next one will use the map with the marker. Otherwise a query without new data, or
        with hours between its batches, could not be moved before the deadline. Returns whether anything has changed.
        """
        nodes = {node for node in step.waiting_for if node.job == job}
        run = self._jobs[job].run
        if not nodes or run.idle_epoch is None or not _is_marked(step, job, run.idle_epoch):
            return False
        former = f"{step.reason}; " if step.reason else ""
        step.reason = f"{former}query {run.name or job} is idle: its next batch runs there"
        return self._in_place(step, nodes, Trigger.IDLE, now)

    def _in_place(
        self, step: DrivenStep, nodes: set[VirtualNode], trigger: Trigger, now: float, batch_id: int | None = None
    ) -> bool:
        """Stops waiting for `nodes`, and ends the step if none is left. Returns whether anything has changed."""
        step.waiting_for -= nodes
        if not step.waiting_for:
            self._finish(step, Trigger.TARGET_LOST if step.redirected else trigger, now, batch_id)
        return bool(nodes)

    def group_changed(self, step: DrivenStep, event: GroupChanged, view: ClusterView, now: float) -> None:
        """Handles the answer to a ChangeGroup. A change that may succeed later is tried again with the next view."""
        step.changes.answered(event.group, event.error, now)
        refused = event.error is not None and not isinstance(event.error, RETRIED)
        if step.state is State.PREPARING and refused:
            self.end(step, Trigger.REFUSED, f"group {event.group} cannot be changed: {event.error}", view, now)

    def end(self, step: DrivenStep, trigger: Trigger, reason: str, view: ClusterView, now: float) -> list[Effect]:
        """Ends the step without confirmation: the virtual nodes follow the owners of their groups again.

        Changes made by the replication manager for the step are undone with the next views (`Cleanup`).
        """
        begun = step.state is not State.PLANNED
        staying = _staying(step, view) if step.state is State.MARKED else []
        if staying:
            reason += f"; with their targets, which own them and have no origin to go back to: {', '.join(staying)}"
        step.advance(trigger, reason)
        step.outcome = Outcome(self.wall_ms(now))
        step.waiting_for = set()
        if begun:
            step.unwinding = set(step.target_of_group)
        if step.marker is None:
            return []
        self._unwatch(step)
        return release(self._jobs, step.moves, view)

    def _finish(self, step: DrivenStep, trigger: Trigger, now: float, batch_id: int | None) -> None:
        """Ends a step with every virtual node confirmed or redirected."""
        step.advance(trigger)
        step.outcome = outcome = Outcome(self.wall_ms(now), batch_id)
        stand = [move for move in step.moves if move.node not in step.redirected]
        step.settling = {group for move in stand for group in move.groups()}
        if step.state is State.REDIRECTING:
            self._unwatch(step)
            step.unwinding = {group for move in step.moves if move.node in step.redirected for group in move.groups()}
            return
        for job in (self._jobs[name] for name in step.of_job()):
            pause_s = job.times.pause(step.name, job.measurements.batch_s)
            if pause_s is not None:
                outcome.pause_s = max(outcome.pause_s or 0.0, pause_s)
        self._measure(step, outcome.pause_s, now)

    def _unwatch(self, step: DrivenStep) -> None:
        for job in step.of_job():
            self._jobs[job].times.unwatch(step.name)

    def _measure(self, step: DrivenStep, pause_s: float | None, now: float) -> None:
        if step.marker is None or step.marker.set_at is None or step.preparation is None:
            return  # a former process has set the marker
        jobs = [self._jobs[job] for job in step.of_job()]
        if not any(job.idle for job in jobs):  # otherwise the time says nothing about how long a switch takes
            for job in jobs:
                job.measurements.steps.append(StepMeasurement(now - step.marker.set_at, pause_s))
        if step.bytes_moved:
            first = self._jobs[min(step.of_job())].measurements
            first.copies.append(CopyMeasurement(step.bytes_moved, step.preparation.copied_s))


def _is_marked(step: DrivenStep, job: str, configuration_epoch: int) -> bool:
    """Whether the map of the epoch includes the step's marker."""
    marked = step.configuration_epochs.get(job)
    return step.state is State.MARKED and marked is not None and configuration_epoch >= marked


def _is_whole(move: Move, view: ClusterView) -> bool:
    known = view.known(move.groups())
    return bool(known) and all(seen.is_whole(move.target) for seen in known)


def _is_copied(move: Move, step: DrivenStep, view: ClusterView) -> bool:
    """Whether the target is a member and not whole, or has been asked to become a member."""
    if step.changes.in_flight.intersection(move.groups()):
        return True
    return any(seen.has(move.target) and not seen.is_whole(move.target) for seen in view.known(move.groups()))


def _staying(step: DrivenStep, view: ClusterView) -> list[str]:
    """Names of virtual nodes whose targets own groups already, and whose origins cannot take these back."""
    return [
        move.node.name
        for move in step.moves
        if move.origin != move.target
        and any(g.owner == move.target and not may_own(move.origin, g, view) for g in view.known(move.groups()))
    ]


def _received(step: DrivenStep, preparation: Preparation, view: ClusterView) -> int:
    target_of, baseline = step.target_of_group, preparation.baseline_bytes
    stored = {group: view.groups[group].stored_bytes for group in baseline if group in view.groups}
    return sum(max(by.get(target_of[g], 0) - baseline[g], 0) for g, by in stored.items())
