"""Takes one step through its phases (Rhino 4.1): prepare, marker, confirm, settle; or unwind what was given up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.core.events import ChangeGroup, Effect, GroupChanged
from handover_manager.core.figures import CopyFigure, StepFigure
from handover_manager.core.job import LoggedBatch
from handover_manager.core.jobs import Jobs
from handover_manager.core.move import Move
from handover_manager.core.step import Phase, Step, Trigger
from handover_manager.core.view import ClusterView, GroupSeen
from rhino.errors import AlreadyThereError, ConflictError, PreconditionError, RhinoError, UnavailableError
from rhino.ids import GroupId, VirtualNode

RETRIED: tuple[type[RhinoError], ...] = (ConflictError, UnavailableError, PreconditionError, AlreadyThereError)


class Stepping:
    """Methods change the step and return effects other than journalling: the caller notes every change of phase.

    `wall_offset_s`: wall clock minus monotonic time, for the times that people read.
    """

    def __init__(self, jobs: Jobs, wall_offset_s: float) -> None:
        self._jobs = jobs
        self._offset_s = wall_offset_s

    def wall_ms(self, now: float) -> int:
        return round((now + self._offset_s) * 1000)

    def begin(self, step: Step, view: ClusterView, now: float) -> None:
        for group, target in step.target_of_group.items():
            seen = view.groups.get(group)
            if seen is not None and not seen.is_whole(target):
                step.baseline_bytes[group] = seen.stored_bytes.get(target, 0)
        step.waiting_for = step.nodes
        step.begun_at = now
        step.advance(Trigger.BEGIN)

    def prepare(self, handover_id: str, step: Step, room: int, view: ClusterView, now: float) -> list[Effect]:
        """Asks for the joins that are missing. `room`: virtual nodes that may be copied at the same time."""
        lost = [target for target in step.targets if not view.reachable(target)]
        if lost:
            self.end(step, Trigger.TARGET_LOST, f"target {', '.join(lost)} was lost before the marker", view, now)
            return []
        step.bytes_moved = max(step.bytes_moved, _received(step, view))
        waiting = [move for move in step.moves if not _is_whole(move, view)]
        step.waiting_for = {move.node for move in waiting}
        if not waiting:
            step.copied_s = step.copied_s or now - step.begun_at
            return []
        copied = [move for move in waiting if _is_copied(move, step, view)]
        fresh = [move for move in waiting if move not in copied][: max(room - len(copied), 0)]
        joins: list[Effect] = []
        for move in [*copied, *fresh]:
            for seen in view.known(move.groups):
                group = seen.group.group
                if not seen.has(move.target) and group not in step.in_flight:
                    step.in_flight.add(group)
                    joins.append(ChangeGroup(handover_id, group, add_member=move.target))
        return joins

    def copies(self, step: Step, view: ClusterView) -> int:
        """Virtual nodes of the step that are being copied."""
        if step.phase is not Phase.PREPARING:
            return 0
        return sum(not _is_whole(move, view) and _is_copied(move, step, view) for move in step.moves)

    def mark(self, step: Step, view: ClusterView, now: float) -> list[Effect]:
        """The marker: a new configuration epoch of every job that the step moves."""
        step.advance(Trigger.WHOLE)
        step.marked_ms, step.marked_at = self.wall_ms(now), now
        step.waiting_for = step.nodes
        step.last_error = ""
        effects: list[Effect] = []
        for job, moves in sorted(step.of_job().items()):
            effects += self._jobs.pin(job, {move.node: move.target for move in moves}, view)
            step.configuration_epochs[job] = self._jobs[job].configuration_epoch
            self._jobs[job].slowest[step.name] = 0.0
        return effects

    def resume(self, step: Step, view: ClusterView) -> list[Effect]:
        """After a restart, of a step past its marker: its targets are desired until they own the groups."""
        effects: list[Effect] = []
        wanted = [m for m in step.moves if step.phase is Phase.MARKED or step.settling.intersection(m.groups)]
        for move in wanted:
            job = self._jobs[move.node.job]
            job.configuration_epoch = max(job.configuration_epoch, step.configuration_epochs[job.job])
            if move.node not in step.redirected:
                effects += self._jobs.pin(job.job, {move.node: move.target}, view)
        return effects

    def watch_targets(self, step: Step, view: ClusterView, now: float) -> list[Effect]:
        """Virtual nodes whose target was lost, or dropped from a chain, follow the owners of their groups again."""
        lost = [
            move
            for move in step.moves
            if move.node not in step.redirected
            and (not view.reachable(move.target) or any(not g.has(move.target) for g in view.known(move.groups)))
        ]
        if not lost:
            return []
        effects = self._release(lost, view)
        heirs = ", ".join(f"{m.node.name} to {self._jobs[m.node.job].desired[m.node]}" for m in lost)
        gone = ", ".join(sorted({move.target for move in lost}))
        step.redirected |= {move.node for move in lost}
        step.waiting_for -= step.redirected
        former = f"{step.reason}; " if step.reason else ""
        step.reason = f"{former}target {gone} was lost after the marker; redirected {heirs}"
        if not step.waiting_for:
            self._finish(step, Trigger.TARGET_LOST, view, now)
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
        """A batch logged after the marker and written by the targets confirms (Rhino 4.1, step 4). True: any change."""
        if not _is_marked(step, job, batch.configuration_epoch):
            return False
        target_of = step.target_of
        written = {node for node in step.waiting_for if actual.get(node) == target_of[node]}
        if written == step.waiting_for:
            step.confirmed_batch_id = batch_id
        return self._in_place(step, written, Trigger.WRITTEN, view, now)

    def query_idle(self, step: Step, job: str, view: ClusterView, now: float) -> bool:
        """No batch runs, and the next one goes by the map: that is as good as written. A query without new data, or one
        with hours between its batches, could else not be moved before its deadline. True: any change.
        """
        nodes = {node for node in step.waiting_for if node.job == job}
        if not nodes or not _is_marked(step, job, self._jobs[job].idle_epoch):
            return False
        former = f"{step.reason}; " if step.reason else ""
        step.reason = f"{former}query {self._jobs[job].name or job} is idle: its next batch runs there"
        return self._in_place(step, nodes, Trigger.IDLE, view, now)

    def _in_place(self, step: Step, nodes: set[VirtualNode], trigger: Trigger, view: ClusterView, now: float) -> bool:
        """`nodes` need not be waited for any more. True: any change."""
        step.waiting_for -= nodes
        if not step.waiting_for:
            self._finish(step, Trigger.TARGET_LOST if step.redirected else trigger, view, now)
        return bool(nodes)

    def group_changed(self, step: Step, event: GroupChanged, view: ClusterView, now: float) -> None:
        """The answer to a ChangeGroup; what may succeed later is tried again with the next view."""
        step.in_flight.discard(event.group)
        step.answered_at[event.group] = now
        if event.error is None:
            return
        step.last_error = str(event.error)
        if step.phase is Phase.PREPARING and not isinstance(event.error, RETRIED):
            self.end(step, Trigger.REFUSED, f"group {event.group} cannot be changed: {event.error}", view, now)

    def settle(self, handover_id: str, step: Step, view: ClusterView) -> tuple[bool, list[Effect]]:
        """Makes the targets owners, and keeps them desired until they are. True: the record has changed."""
        if not view.groups:
            return False, []  # a manager that has just started has seen nothing yet
        target_of = step.target_of_group
        known = view.known(sorted(step.settling))
        done = step.settling - {g.group.group for g in known}
        for seen in known:
            target = target_of[seen.group.group]
            if not view.reachable(target) or seen.owner == target or not seen.has(target):
                done.add(seen.group.group)
        asked = sorted(step.settling - done - step.in_flight)
        step.in_flight.update(asked)
        effects: list[Effect] = [ChangeGroup(handover_id, g, make_owner=target_of[g]) for g in asked]
        if not done:
            return False, effects
        step.settling -= done
        settled = [m for m in step.moves if not step.settling.intersection(m.groups) and m.node not in step.redirected]
        return True, effects + self._release(settled, view)

    def unwind(self, handover_id: str, step: Step, busy: set[GroupId], view: ClusterView) -> list[Effect]:
        """Takes targets out of chains that they made longer: naming the owner again cuts them to r secondaries.

        After a marker some targets may have become owners, by logged batches: the origins are made owners again.
        """
        if not view.groups:
            return []  # a manager that has just started has seen nothing yet
        target_of = step.target_of_group
        unseen = step.in_flight | {g for g, answered_at in step.answered_at.items() if answered_at >= view.asked_at}
        known = view.known(sorted(step.unwinding - busy - unseen))
        origin_of = step.origin_of_group if step.phase is Phase.ROLLED_BACK and step.marked_ms else {}
        owners: dict[GroupId, str] = {}
        for seen in known:
            group = seen.group.group
            origin, target = origin_of.get(group, ""), target_of[group]
            if seen.owner == target and _may_own(origin, seen, view):
                owners[group] = origin
            elif view.is_longer(seen) and seen.has(target):
                owners[group] = seen.owner
        step.unwinding = set(owners) | ((unseen & step.unwinding) - busy)
        step.in_flight.update(owners)
        return [ChangeGroup(handover_id, group, make_owner=owner) for group, owner in owners.items()]

    def end(self, step: Step, trigger: Trigger, reason: str, view: ClusterView, now: float) -> list[Effect]:
        """Any end but the confirmed one: the virtual nodes follow the owners of their groups again.

        What was asked of the replication manager is taken back with the next views (`unwind`).
        """
        begun = step.phase is not Phase.PLANNED
        staying = _staying(step, view) if step.phase is Phase.MARKED else []
        if staying:
            reason += f"; with their targets, which own them and have no origin to go back to: {', '.join(staying)}"
        step.advance(trigger, reason)
        step.finished_ms = self.wall_ms(now)
        step.waiting_for = set()
        if begun:
            step.unwinding = set(step.target_of_group)
        if not step.configuration_epochs:
            return []
        self._unwatch(step)
        return self._release(step.moves, view)

    def _finish(self, step: Step, trigger: Trigger, view: ClusterView, now: float) -> None:
        """Every virtual node is written by its target, or redirected."""
        step.advance(trigger)
        step.finished_ms = self.wall_ms(now)
        stand = [move for move in step.moves if move.node not in step.redirected]
        step.settling = {group for move in stand for group in move.groups}
        if step.phase is not Phase.CONFIRMED:
            self._unwatch(step)
            step.unwinding = {group for move in step.moves if move.node in step.redirected for group in move.groups}
            return
        for job in step.of_job():
            pause_s = self._jobs[job].pause(step.name)
            if pause_s is not None:
                step.pause_s = max(step.pause_s or 0.0, pause_s)
        self._measure(step, now)

    def _unwatch(self, step: Step) -> None:
        for job in step.of_job():
            self._jobs[job].slowest.pop(step.name, None)

    def _measure(self, step: Step, now: float) -> None:
        if not step.marked_at:
            return  # the marker was of a former process
        jobs = [self._jobs[job] for job in step.of_job()]
        if not any(job.idle for job in jobs):  # else it says nothing of how long a switch takes
            for job in jobs:
                job.figures.steps.append(StepFigure(now - step.marked_at, step.pause_s))
        if step.bytes_moved:
            first = self._jobs[min(step.of_job())].figures
            first.copies.append(CopyFigure(step.bytes_moved, step.copied_s))

    def _release(self, moves: Iterable[Move], view: ClusterView) -> list[Effect]:
        effects: list[Effect] = []
        found: dict[tuple[str, str], list[VirtualNode]] = {}
        for move in moves:
            found.setdefault((move.node.job, move.target), []).append(move.node)
        for (job, target), nodes in sorted(found.items()):
            effects += self._jobs.unpin(job, nodes, target, view)
        return effects


def _is_marked(step: Step, job: str, configuration_epoch: int) -> bool:
    """Whether the map of that epoch has the step's marker."""
    return step.phase is Phase.MARKED and configuration_epoch >= step.configuration_epochs.get(job, 1 << 62)


def _is_whole(move: Move, view: ClusterView) -> bool:
    known = view.known(move.groups)
    return bool(known) and all(seen.is_whole(move.target) for seen in known)


def _is_copied(move: Move, step: Step, view: ClusterView) -> bool:
    """The target is a member that is not whole, or has been asked to become one."""
    if step.in_flight.intersection(move.groups):
        return True
    return any(seen.has(move.target) and not seen.is_whole(move.target) for seen in view.known(move.groups))


def _may_own(origin: str, seen: GroupSeen, view: ClusterView) -> bool:
    """Whether the group can be given back to `origin`, and should."""
    return seen.is_whole(origin) and view.reachable(origin) and not view.draining(origin)


def _staying(step: Step, view: ClusterView) -> list[str]:
    """Names of virtual nodes that their targets own already and their origins cannot take back."""
    return [
        move.node.name
        for move in step.moves
        if any(g.owner == move.target and not _may_own(move.origin, g, view) for g in view.known(move.groups))
    ]


def _received(step: Step, view: ClusterView) -> int:
    target_of = step.target_of_group
    stored = {group: view.groups[group].stored_bytes for group in step.baseline_bytes if group in view.groups}
    return sum(max(by.get(target_of[g], 0) - step.baseline_bytes[g], 0) for g, by in stored.items())
