"""Drives handovers through their phases (Rhino 4.1): all virtual nodes of a plan at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handover_manager.core.events import Announce, ChangeGroup, Effect, GroupChanged, Persist
from handover_manager.core.handover import Handover, Phase, Trigger
from handover_manager.core.job import LoggedBatch
from handover_manager.core.jobs import Jobs
from handover_manager.core.plan import Plan
from handover_manager.core.records import handover_key, handover_to_json
from handover_manager.core.view import ClusterView
from rhino.errors import (
    AlreadyThereError,
    ConflictError,
    PreconditionError,
    RhinoError,
    UnavailableError,
    UnknownError,
)
from rhino.ids import VirtualNode

ENDED_MAX = 1000  # ended handovers that are remembered
RETRIED: tuple[type[RhinoError], ...] = (ConflictError, UnavailableError, PreconditionError, AlreadyThereError)


class Handovers:
    """The table of handovers, oldest first. Methods return effects, to be executed in order.

    `wall_offset_s`: wall clock minus monotonic time, for the times that people read.
    """

    def __init__(self, jobs: Jobs, wall_offset_s: float, restored: Iterable[Handover] = ()) -> None:
        self._jobs = jobs
        self._offset_s = wall_offset_s
        self._all = {h.handover_id: h for h in sorted(restored, key=lambda h: (h.started_ms, h.handover_id))}

    def find(self, handover_id: str) -> Handover:
        if handover_id not in self._all:
            raise UnknownError(f"handover {handover_id!r}: unknown")
        return self._all[handover_id]

    def all(self) -> list[Handover]:
        return list(self._all.values())

    def active(self) -> list[Handover]:
        return [h for h in self._all.values() if not h.phase.ended]

    def running(self) -> dict[VirtualNode, str]:
        """Virtual nodes under a handover that has not ended, with its id."""
        return {move.node: h.handover_id for h in self.active() for move in h.plan.moves}

    def start(self, handover_id: str, plan: Plan, deadline_s: float, view: ClusterView, now: float) -> list[Effect]:
        """Journals the intent and begins to prepare."""
        handover = Handover(handover_id, plan, deadline_s, now + deadline_s, self._wall_ms(now))
        for group in plan.groups:
            seen = view.groups.get(group)
            if seen is not None and not seen.is_whole(plan.target):
                handover.baseline_bytes[group] = seen.stored_bytes.get(plan.target, 0)
        handover.waiting_for = {move.node for move in plan.moves}
        handover.advance(Trigger.BEGIN)
        self._all[handover_id] = handover
        return [*self._prune(), *self._note(handover), *self._prepare(handover, view, now)]

    def cancel(self, handover_id: str, view: ClusterView, now: float) -> list[Effect]:
        """Raises PreconditionError from the marker on: the target may be writing already."""
        handover = self.find(handover_id)
        if handover.phase not in (Phase.PLANNED, Phase.PREPARING):
            raise PreconditionError(
                f"handover {handover_id} is {handover.phase.value}: only before its marker can it be cancelled; "
                "to go back, hand over in the other direction"
            )
        return self._end(handover, Trigger.CANCEL, "cancelled by request", view, now)

    def check_none(self, job: str) -> None:
        """Raises PreconditionError while a handover of the job is under way."""
        for handover in self.active():
            if handover.plan.job == job:
                raise PreconditionError(f"job {job}: handover {handover.handover_id} is under way: cancel it or wait")

    def forget(self, job: str) -> list[Effect]:
        """What is remembered of the job's ended handovers goes."""
        gone = [handover.handover_id for handover in self.all() if handover.plan.job == job]
        for handover_id in gone:
            del self._all[handover_id]
        return [Persist(handover_key(handover_id), None) for handover_id in gone]

    def restart(self, view: ClusterView, now: float) -> list[Effect]:
        """After a restart: before the marker rolled back, after it still to be confirmed."""
        effects: list[Effect] = []
        for handover in self.all():
            nodes = {move.node: handover.target for move in handover.plan.moves}
            if handover.phase in (Phase.PLANNED, Phase.PREPARING):
                reason = "the manager restarted before the marker"
                effects += self._end(handover, Trigger.RESTART, reason, view, now)
            elif handover.phase is Phase.MARKED or handover.settling:
                if handover.phase is Phase.MARKED:
                    handover.advance(Trigger.RESTART)
                job = self._jobs[handover.plan.job]
                job.configuration_epoch = max(job.configuration_epoch, handover.configuration_epoch)
                effects += self._jobs.pin(job.job, nodes, view)
        return effects

    def observe(self, view: ClusterView, now: float) -> list[Effect]:
        """Takes every handover as far as the cluster now allows."""
        effects: list[Effect] = self.expire(view, now)
        for handover in self.all():
            if handover.phase is Phase.PREPARING:
                effects += self._prepare(handover, view, now)
            elif handover.phase is Phase.MARKED:
                effects += self._watch_target(handover, view, now)
            elif handover.settling:
                effects += self._settle(handover, view)
            elif handover.unwinding:
                effects += self._unwind(handover, view)
        return effects

    def expire(self, view: ClusterView, now: float) -> list[Effect]:
        """Rolls back what has passed its deadline, so that every handover ends within a known time."""
        effects: list[Effect] = []
        for handover in self.active():
            if now < handover.deadline:
                continue
            waiting = ", ".join(node.name for node in sorted(handover.waiting_for))
            what = "prepared" if handover.phase is Phase.PREPARING else f"written by worker {handover.target}"
            reason = f"deadline of {handover.deadline_s:g} s: virtual nodes {waiting} not {what}"
            if handover.last_error:
                reason += f" (last error: {handover.last_error})"
            effects += self._end(handover, Trigger.DEADLINE, reason, view, now)
        return effects

    def batch_settled(
        self,
        job: str,
        batch_id: int,
        batch: LoggedBatch,
        actual: Mapping[VirtualNode, str],
        view: ClusterView,
        now: float,
    ) -> list[Effect]:
        """A batch logged after the marker and written by the target confirms (Rhino 4.1, step 4)."""
        effects: list[Effect] = []
        for handover in self.active():
            logged_after = batch.configuration_epoch >= handover.configuration_epoch
            if handover.plan.job != job or handover.phase is not Phase.MARKED or not logged_after:
                continue
            written = {n for n in handover.waiting_for if actual.get(n) == handover.target}
            if not written:
                continue
            handover.waiting_for -= written
            if handover.waiting_for:
                effects.append(Announce(handover.handover_id))
            else:
                effects += self._confirm(handover, batch_id, view, now)
        return effects

    def group_changed(self, event: GroupChanged, view: ClusterView, now: float) -> list[Effect]:
        """The answer to a ChangeGroup; what may succeed later is tried again with the next view."""
        handover = self._all.get(event.handover_id)
        if handover is None:
            return []  # ended and forgotten meanwhile
        handover.in_flight.discard(event.group)
        if event.error is None:
            return []
        handover.last_error = str(event.error)
        if handover.phase is Phase.PREPARING and not isinstance(event.error, RETRIED):
            reason = f"group {event.group} cannot be changed: {event.error}"
            return self._end(handover, Trigger.REFUSED, reason, view, now)
        return []

    def next_deadline(self) -> float | None:
        return min((h.deadline for h in self.active()), default=None)

    def _prepare(self, handover: Handover, view: ClusterView, now: float) -> list[Effect]:
        if not view.reachable(handover.target):
            reason = f"target {handover.target} was lost before the marker"
            return self._end(handover, Trigger.TARGET_LOST, reason, view, now)
        stored = {g: view.groups[g].stored_bytes for g in handover.baseline_bytes if g in view.groups}
        moved = sum(max(s.get(handover.target, 0) - handover.baseline_bytes[g], 0) for g, s in stored.items())
        handover.bytes_moved = max(handover.bytes_moved, moved)
        waiting, joins = self._lacking(handover, view)
        if not waiting:
            return self._mark(handover, view, now)
        news: list[Effect] = [Announce(handover.handover_id)] if waiting != handover.waiting_for else []
        handover.waiting_for = waiting
        return news + joins

    def _lacking(self, handover: Handover, view: ClusterView) -> tuple[set[VirtualNode], list[Effect]]:
        """Virtual nodes that the target does not hold whole, and the joins that are still to be asked for."""
        waiting: set[VirtualNode] = set()
        joins: list[Effect] = []
        for move in handover.plan.moves:
            known = view.known(move.groups)
            if not known:
                waiting.add(move.node)
            for seen in known:
                group = seen.group.group
                if seen.is_whole(handover.target):
                    continue
                waiting.add(move.node)
                if not seen.has(handover.target) and group not in handover.in_flight:
                    handover.in_flight.add(group)
                    joins.append(ChangeGroup(handover.handover_id, group, add_member=handover.target))
        return waiting, joins

    def _mark(self, handover: Handover, view: ClusterView, now: float) -> list[Effect]:
        handover.advance(Trigger.WHOLE)
        handover.marked_ms = self._wall_ms(now)
        handover.waiting_for = {move.node for move in handover.plan.moves}
        handover.last_error = ""
        pinned = {move.node: handover.target for move in handover.plan.moves}
        pushes = self._jobs.pin(handover.plan.job, pinned, view)
        handover.configuration_epoch = self._jobs[handover.plan.job].configuration_epoch
        return [*self._note(handover), *pushes]

    def _watch_target(self, handover: Handover, view: ClusterView, now: float) -> list[Effect]:
        dropped = [seen for seen in view.known(handover.plan.groups) if not seen.has(handover.target)]
        if view.reachable(handover.target) and not dropped:
            return []
        job, moves = self._jobs[handover.plan.job], handover.plan.moves
        released = self._jobs.unpin(job.job, [move.node for move in moves], handover.target, view)
        heirs = ", ".join(f"{move.node.name} to {job.desired[move.node]}" for move in moves)
        reason = f"target {handover.target} was lost after the marker; redirected {heirs}"
        return [*self._end(handover, Trigger.TARGET_LOST, reason, view, now), *released]

    def _confirm(self, handover: Handover, batch_id: int, view: ClusterView, now: float) -> list[Effect]:
        handover.advance(Trigger.WRITTEN)
        handover.confirmed_batch_id = batch_id
        handover.finished_ms = self._wall_ms(now)
        handover.settling = {g.group.group for g in view.known(handover.plan.groups)}
        return [*self._note(handover), *self._settle(handover, view)]

    def _settle(self, handover: Handover, view: ClusterView) -> list[Effect]:
        """Makes the target the owner, and keeps it desired until it is one."""
        known = view.known(sorted(handover.settling))
        lost = not view.reachable(handover.target)
        gone = handover.settling - {g.group.group for g in known}
        done = gone | {g.group.group for g in known if lost or g.owner == handover.target or not g.has(handover.target)}
        asked = [g.group.group for g in known if g.group.group not in done | handover.in_flight]
        handover.in_flight.update(asked)
        effects: list[Effect] = [ChangeGroup(handover.handover_id, g, make_owner=handover.target) for g in asked]
        if not done:
            return effects
        handover.settling -= done
        nodes = [m.node for m in handover.plan.moves if not handover.settling.intersection(m.groups)]
        effects += self._jobs.unpin(handover.plan.job, nodes, handover.target, view)
        return [*self._note(handover), *effects]

    def _unwind(self, handover: Handover, view: ClusterView) -> list[Effect]:
        """Takes the target out of chains that it made longer: naming the owner again cuts them to r secondaries."""
        busy = {g for h in self.active() for g in h.plan.groups}
        known = view.known(sorted(handover.unwinding - busy - handover.in_flight))
        asked = [g for g in known if g.is_longer and g.has(handover.target)]
        handover.unwinding = {g.group.group for g in asked} | (handover.in_flight - busy)
        handover.in_flight.update(g.group.group for g in asked)
        return [ChangeGroup(handover.handover_id, g.group.group, make_owner=g.owner) for g in asked]

    def _end(self, handover: Handover, trigger: Trigger, reason: str, view: ClusterView, now: float) -> list[Effect]:
        """Any end but the confirmed one: the virtual nodes follow the owners of their groups again.

        What was asked of the replication manager is taken back with the next views (`_unwind`).
        """
        handover.advance(trigger, reason)
        handover.finished_ms = self._wall_ms(now)
        nodes = [move.node for move in handover.plan.moves]
        handover.unwinding = set(handover.plan.groups)
        released: list[Effect] = []
        if handover.configuration_epoch:
            released = self._jobs.unpin(handover.plan.job, nodes, handover.target, view)
        return [*self._note(handover), *released]

    def _note(self, handover: Handover) -> list[Effect]:
        return [
            Persist(handover_key(handover.handover_id), handover_to_json(handover)),
            Announce(handover.handover_id),
        ]

    def _prune(self) -> list[Effect]:
        ended = [h for h in self._all.values() if h.phase.ended and not h.settling and not h.unwinding]
        old = [h.handover_id for h in ended[: max(len(ended) - ENDED_MAX, 0)]]
        for handover_id in old:
            del self._all[handover_id]
        return [Persist(handover_key(handover_id), None) for handover_id in old]

    def _wall_ms(self, now: float) -> int:
        return round((now + self._offset_s) * 1000)

    def check_invariants(self) -> None:
        nodes = [move.node for h in self.active() for move in h.plan.moves]
        assert len(nodes) == len(set(nodes)), "a virtual node is under two handovers"
        for handover in self._all.values():
            handover.check_invariants()
