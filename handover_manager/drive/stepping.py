"""Drives one step through its phases (Rhino 4.1): prepare, mark, confirm, settle, or unwind after a failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.drive.states import State, Trigger
from handover_manager.drive.step import Marker, Outcome, Preparation, Step
from handover_manager.events import ChangeGroup, Effect, GroupChanged
from handover_manager.plan.measurements import CopyFigure, StepFigure
from handover_manager.plan.move import Move
from handover_manager.queries.job import LoggedBatch
from handover_manager.queries.jobs import Jobs
from handover_manager.view import ClusterView, GroupSeen
from rhino_core.errors import AlreadyThereError, ConflictError, PreconditionError, RhinoError, UnavailableError
from rhino_core.ids import GroupId, VirtualNode

RETRIED: tuple[type[RhinoError], ...] = (ConflictError, UnavailableError, PreconditionError, AlreadyThereError)


class Stepping:
    """Methods change the step and return effects other than journalling. The caller journals every change of phase.

    `wall_offset_s` is wall clock minus monotonic time, for the times shown to people.
    """

    def __init__(self, jobs: Jobs, wall_offset_s: float) -> None:
        self._jobs = jobs
        self._offset_s = wall_offset_s

    def wall_ms(self, now: float) -> int:
        return round((now + self._offset_s) * 1000)

    def begin(self, step: Step, view: ClusterView, now: float) -> None:
        step.preparation = Preparation(
            now,
            {
                group: seen.stored_bytes.get(target, 0)
                for group, target in step.target_of_group.items()
                if (seen := view.groups.get(group)) is not None and not seen.is_whole(target)
            },
        )
        step.waiting_for = step.nodes
        step.advance(Trigger.BEGIN)

    def prepare(self, handover_id: str, step: Step, room: int, view: ClusterView, now: float) -> list[Effect]:
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
            lacking = [seen.group.group for seen in view.known(move.groups) if not seen.has(move.target)]
            joins += [ChangeGroup(handover_id, group, add_member=move.target) for group in step.changes.ask(lacking)]
        return joins

    def copies(self, step: Step, view: ClusterView) -> int:
        """Number of virtual nodes of the step that are being copied."""
        if step.state is not State.PREPARING:
            return 0
        return sum(not _is_whole(move, view) and _is_copied(move, step, view) for move in step.moves)

    def mark(self, step: Step, view: ClusterView, now: float) -> list[Effect]:
        """Sets the marker: a new configuration epoch for every job that the step moves."""
        step.advance(Trigger.WHOLE)
        step.waiting_for = step.nodes
        step.changes.last_error = ""
        effects: list[Effect] = []
        epochs: dict[str, int] = {}
        for job, moves in sorted(step.of_job().items()):
            effects += self._jobs.pin(job, {move.node: move.target for move in moves}, view)
            epochs[job] = self._jobs[job].configuration_epoch
            self._jobs[job].slowest[step.name] = 0.0
        step.marker = Marker(epochs, self.wall_ms(now), now)
        return effects

    def resume(self, step: Step, view: ClusterView) -> list[Effect]:
        """After a restart, makes the targets of a step past its marker desired again until they own the groups."""
        effects: list[Effect] = []
        wanted = [m for m in step.moves if step.state is State.MARKED or step.settling.intersection(m.groups)]
        for move in wanted:
            job = self._jobs[move.node.job]
            job.configuration_epoch = max(job.configuration_epoch, step.configuration_epochs[job.job])
            if move.node not in step.redirected:
                effects += self._jobs.pin(job.job, {move.node: move.target}, view)
        return effects

    def watch_targets(self, step: Step, marker: Marker, view: ClusterView, now: float) -> list[Effect]:
        """Redirects virtual nodes whose target was lost or dropped from a chain.

        They follow the owners of their groups again.
        """
        lost = [
            move
            for move in step.moves
            if move.node not in marker.redirected
            and (not view.reachable(move.target) or any(not g.has(move.target) for g in view.known(move.groups)))
        ]
        if not lost:
            return []
        effects = self._release(lost, view)
        successors = ", ".join(
            f"{m.node.name} to {self._jobs[m.node.job].desired.get(m.node, 'no worker')}" for m in lost
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
        step: Step,
        job: str,
        batch_id: int,
        batch: LoggedBatch,
        actual: Mapping[VirtualNode, str],
        view: ClusterView,
        now: float,
    ) -> bool:
        """Confirms virtual nodes whose targets wrote a batch that was logged after the marker (Rhino 4.1, step 4).

        Returns whether anything has changed.
        """
        if not _is_marked(step, job, batch.configuration_epoch):
            return False
        target_of = step.target_of
        written = {node for node in step.waiting_for if actual.get(node) == target_of[node]}
        return self._in_place(step, written, Trigger.WRITTEN, now, batch_id)

    def query_idle(self, step: Step, job: str, view: ClusterView, now: float) -> bool:
        """Confirms the virtual nodes of an idle query.

        No batch of it runs, and the next one will use the map with the marker. Otherwise a query without new data, or
        with hours between its batches, could not be moved before the deadline. Returns whether anything has changed.
        """
        nodes = {node for node in step.waiting_for if node.job == job}
        idle_epoch = self._jobs[job].idle_epoch
        if not nodes or idle_epoch is None or not _is_marked(step, job, idle_epoch):
            return False
        former = f"{step.reason}; " if step.reason else ""
        step.reason = f"{former}query {self._jobs[job].name or job} is idle: its next batch runs there"
        return self._in_place(step, nodes, Trigger.IDLE, now)

    def _in_place(
        self, step: Step, nodes: set[VirtualNode], trigger: Trigger, now: float, batch_id: int | None = None
    ) -> bool:
        """Stops waiting for `nodes`, and ends the step if none is left. Returns whether anything has changed."""
        step.waiting_for -= nodes
        if not step.waiting_for:
            self._finish(step, Trigger.TARGET_LOST if step.redirected else trigger, now, batch_id)
        return bool(nodes)

    def group_changed(self, step: Step, event: GroupChanged, view: ClusterView, now: float) -> None:
        """Handles the answer to a ChangeGroup. A change that may succeed later is tried again with the next view."""
        step.changes.answered(event.group, event.error, now)
        refused = event.error is not None and not isinstance(event.error, RETRIED)
        if step.state is State.PREPARING and refused:
            self.end(step, Trigger.REFUSED, f"group {event.group} cannot be changed: {event.error}", view, now)

    def settle(self, handover_id: str, step: Step, view: ClusterView) -> tuple[bool, list[Effect]]:
        """Makes the targets owners, and keeps them desired until they are. Returns whether the record has changed."""
        if not view.groups:
            return False, []  # a manager that has just started has seen no group yet
        target_of = step.target_of_group
        known = view.known(sorted(step.settling))
        done = step.settling - {g.group.group for g in known}
        for seen in known:
            target = target_of[seen.group.group]
            if not view.reachable(target) or seen.owner == target or not seen.has(target):
                done.add(seen.group.group)
        asked = step.changes.ask(sorted(step.settling - done))
        effects: list[Effect] = [ChangeGroup(handover_id, g, make_owner=target_of[g]) for g in asked]
        if not done:
            return False, effects
        step.settling -= done
        settled = [m for m in step.moves if not step.settling.intersection(m.groups) and m.node not in step.redirected]
        return True, effects + self._release(settled, view)

    def unwind(self, handover_id: str, step: Step, busy: set[GroupId], view: ClusterView) -> list[Effect]:
        """Removes targets from chains that they made longer. Naming the owner again cuts a chain to r secondaries.

        After a marker some targets may have become owners through logged batches. The origins then become owners again.
        """
        if not view.groups:
            return []  # a manager that has just started has seen no group yet
        target_of = step.target_of_group
        unseen = step.changes.unseen(view.asked_at)
        known = view.known(sorted(step.unwinding - busy - unseen))
        origin_of = step.origin_of_group if step.state is State.ROLLING_BACK and step.marker is not None else {}
        owners: dict[GroupId, str] = {}
        for seen in known:
            group = seen.group.group
            origin, target = origin_of.get(group, ""), target_of[group]
            if seen.owner == target and _may_own(origin, seen, view):
                owners[group] = origin
            elif view.is_longer(seen) and seen.has(target):
                owners[group] = seen.owner
        step.unwinding = set(owners) | ((unseen & step.unwinding) - busy)
        step.changes.in_flight.update(owners)
        return [ChangeGroup(handover_id, group, make_owner=owner) for group, owner in owners.items()]

    def end(self, step: Step, trigger: Trigger, reason: str, view: ClusterView, now: float) -> list[Effect]:
        """Ends the step without confirmation: the virtual nodes follow the owners of their groups again.

        Changes that the replication manager made for the step are undone with the next views (`unwind`).
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
        return self._release(step.moves, view)

    def _finish(self, step: Step, trigger: Trigger, now: float, batch_id: int | None) -> None:
        """Ends a step in which every virtual node was confirmed or redirected."""
        step.advance(trigger)
        step.outcome = outcome = Outcome(self.wall_ms(now), batch_id)
        stand = [move for move in step.moves if move.node not in step.redirected]
        step.settling = {group for move in stand for group in move.groups}
        if step.state is State.REDIRECTING:
            self._unwatch(step)
            step.unwinding = {group for move in step.moves if move.node in step.redirected for group in move.groups}
            return
        for job in step.of_job():
            pause_s = self._jobs[job].pause(step.name)
            if pause_s is not None:
                outcome.pause_s = max(outcome.pause_s or 0.0, pause_s)
        self._measure(step, outcome.pause_s, now)

    def _unwatch(self, step: Step) -> None:
        for job in step.of_job():
            self._jobs[job].slowest.pop(step.name, None)

    def _measure(self, step: Step, pause_s: float | None, now: float) -> None:
        if step.marker is None or step.marker.set_at is None or step.preparation is None:
            return  # a former process has set the marker
        jobs = [self._jobs[job] for job in step.of_job()]
        if not any(job.idle for job in jobs):  # otherwise the time says nothing about how long a switch takes
            for job in jobs:
                job.figures.steps.append(StepFigure(now - step.marker.set_at, pause_s))
        if step.bytes_moved:
            first = self._jobs[min(step.of_job())].figures
            first.copies.append(CopyFigure(step.bytes_moved, step.preparation.copied_s))

    def _release(self, moves: Iterable[Move], view: ClusterView) -> list[Effect]:
        effects: list[Effect] = []
        found: dict[tuple[str, str], list[VirtualNode]] = {}
        for move in moves:
            found.setdefault((move.node.job, move.target), []).append(move.node)
        for (job, target), nodes in sorted(found.items()):
            effects += self._jobs.unpin(job, nodes, target, view)
        return effects


def _is_marked(step: Step, job: str, configuration_epoch: int) -> bool:
    """Whether the map of that epoch includes the step's marker."""
    marked = step.configuration_epochs.get(job)
    return step.state is State.MARKED and marked is not None and configuration_epoch >= marked


def _is_whole(move: Move, view: ClusterView) -> bool:
    known = view.known(move.groups)
    return bool(known) and all(seen.is_whole(move.target) for seen in known)


def _is_copied(move: Move, step: Step, view: ClusterView) -> bool:
    """Whether the target is a member that is not whole, or has been asked to become a member."""
    if step.changes.in_flight.intersection(move.groups):
        return True
    return any(seen.has(move.target) and not seen.is_whole(move.target) for seen in view.known(move.groups))


def _may_own(origin: str, seen: GroupSeen, view: ClusterView) -> bool:
    """Whether the group can and should be given back to `origin`."""
    return seen.is_whole(origin) and view.reachable(origin) and not view.draining(origin)


def _staying(step: Step, view: ClusterView) -> list[str]:
    """Names of virtual nodes whose targets own groups already, and whose origins cannot take these back."""
    return [
        move.node.name
        for move in step.moves
        if move.origin != move.target
        and any(g.owner == move.target and not _may_own(move.origin, g, view) for g in view.known(move.groups))
    ]


def _received(step: Step, preparation: Preparation, view: ClusterView) -> int:
    target_of, baseline = step.target_of_group, preparation.baseline_bytes
    stored = {group: view.groups[group].stored_bytes for group in baseline if group in view.groups}
    return sum(max(by.get(target_of[g], 0) - baseline[g], 0) for g, by in stored.items())
