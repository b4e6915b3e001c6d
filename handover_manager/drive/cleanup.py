"""Changes the groups of ended steps: targets become owners, or the chains lengthened by the steps are cut."""

from __future__ import annotations

from collections.abc import Iterable

from handover_manager.drive.handover import DrivenHandover
from handover_manager.drive.handovers import Handovers
from handover_manager.drive.states import State
from handover_manager.drive.step import DrivenStep
from handover_manager.events import ChangeGroup, Effect
from handover_manager.queries.jobs import Jobs
from handover_manager.view import ClusterView, GroupSeen
from rhino_core.ids import GroupId, VirtualNode
from rhino_model.handovers import Move


class Cleanup:
    """Methods change the steps, and return effects to be executed in order."""

    def __init__(self, jobs: Jobs, handovers: Handovers) -> None:
        self._jobs = jobs
        self._handovers = handovers

    def clean_up(self, handover: DrivenHandover, view: ClusterView) -> list[Effect]:
        """Settles confirmed steps, and unwinds given-up ones. Closes the handover when nothing remains."""
        effects: list[Effect] = []
        for step in handover.steps:
            if step.settling:
                changed, settled = self.settle(handover.handover_id, step, view)
                effects += [*(self._handovers.record(handover) if changed else ()), *settled]
            if step.unwinding:
                before = set(step.unwinding)
                shortened = self._unwind(handover.handover_id, step, view)
                effects += [*(self._handovers.record(handover) if step.unwinding != before else ()), *shortened]
            step.clean()
        if handover.final:
            self._handovers.close(handover)
        return effects

    def settle(self, handover_id: str, step: DrivenStep, view: ClusterView) -> tuple[bool, list[Effect]]:
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
        settled = [
            m for m in step.moves if not step.settling.intersection(m.groups()) and m.node not in step.redirected
        ]
        return True, effects + release(self._jobs, settled, view)

    def _unwind(self, handover_id: str, step: DrivenStep, view: ClusterView) -> list[Effect]:
        """Removes targets from the chains they lengthened. Naming the owner again cuts a chain to r secondaries.

        After a marker some targets may have become owners through logged batches. The origins then become owners again.
        """
        if not view.groups:
            return []  # a manager that has just started has seen no group yet
        target_of, busy = step.target_of_group, self._handovers.busy_groups()
        unseen = step.changes.unseen(view.asked_at)
        known = view.known(sorted(step.unwinding - busy - unseen))
        origin_of = step.origin_of_group if step.state is State.ROLLING_BACK and step.marker is not None else {}
        owners: dict[GroupId, str] = {}
        for seen in known:
            group = seen.group.group
            origin, target = origin_of.get(group, ""), target_of[group]
            if seen.owner == target and may_own(origin, seen, view):
                owners[group] = origin
            elif view.is_longer(seen) and seen.has(target):
                owners[group] = seen.owner
        step.unwinding = set(owners) | ((unseen & step.unwinding) - busy)
        step.changes.in_flight.update(owners)
        return [ChangeGroup(handover_id, group, make_owner=owner) for group, owner in owners.items()]


def release(jobs: Jobs, moves: Iterable[Move], view: ClusterView) -> list[Effect]:
    """Ends the markers of these moves: the virtual nodes follow the owners of their groups again."""
    effects: list[Effect] = []
    found: dict[tuple[str, str], list[VirtualNode]] = {}
    for move in moves:
        found.setdefault((move.node.job, move.target), []).append(move.node)
    for (job, target), nodes in sorted(found.items()):
        effects += jobs.unpin(job, nodes, target, view)
    return effects


def may_own(origin: str, seen: GroupSeen, view: ClusterView) -> bool:
    """Whether the group can and should be given back to `origin`."""
    return seen.is_whole(origin) and view.reachable(origin) and not view.draining(origin)
