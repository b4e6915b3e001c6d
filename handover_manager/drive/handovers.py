"""The table of handovers, and their journal records."""

from __future__ import annotations

from collections.abc import Iterable

from handover_manager.drive.handover import DrivenHandover
from handover_manager.drive.records import handover_key, record_of_handover, record_of_step, step_key
from handover_manager.drive.states import State
from handover_manager.drive.step import DrivenStep
from handover_manager.events import Announce, Effect, Persist
from rhino_core.errors import PreconditionError, UnknownError
from rhino_core.ids import GroupId, VirtualNode

ENDED_MAX = 1000  # ended handovers that are kept


class Handovers:
    """All handovers, oldest first. A handover is open until it has ended and no group remains to be changed.

    Methods return effects, to be executed in order.
    """

    def __init__(self, restored: Iterable[DrivenHandover] = ()) -> None:
        self._all = {h.handover_id: h for h in sorted(restored, key=lambda h: (h.started_ms, h.handover_id))}
        self._open = {name: h for name, h in self._all.items() if not h.final}  # a subset, for there may be many
        self._steps = {  # records of steps by key, as journalled
            step_key(name, number): record_of_step(step)
            for name, h in self._all.items()
            for number, step in enumerate(h.steps, 1)
            if step.state is not State.PLANNED
        }

    def get(self, handover_id: str) -> DrivenHandover | None:
        return self._all.get(handover_id)

    def find(self, handover_id: str) -> DrivenHandover:
        """Raises UnknownError."""
        if handover_id not in self._all:
            raise UnknownError(f"handover {handover_id!r}: unknown")
        return self._all[handover_id]

    def all(self) -> list[DrivenHandover]:
        return list(self._all.values())

    def open(self) -> list[DrivenHandover]:
        return list(self._open.values())

    def active(self) -> list[DrivenHandover]:
        """Handovers in progress."""
        return [h for h in self._open.values() if not h.ended]

    def _active_steps(self) -> list[tuple[DrivenHandover, DrivenStep]]:
        return [(h, step) for h in self.active() for step in h.steps if not step.state.ended]

    def running(self) -> dict[VirtualNode, str]:
        """Virtual nodes in open steps, with the handover's id."""
        return {move.node: h.handover_id for h, step in self._active_steps() for move in step.moves}

    def arriving(self) -> dict[str, str]:
        """Targets of open steps, with the handover's id."""
        return {move.target: h.handover_id for h, step in self._active_steps() for move in step.moves}

    def targets(self) -> dict[GroupId, str]:
        """Targets, by group, of open steps and of steps whose targets do not own all their groups yet."""
        return {
            group: target
            for handover in self.open()
            for step in handover.steps
            for group, target in step.target_of_group.items()
            if not step.state.ended or group in step.settling
        }

    def busy_groups(self) -> set[GroupId]:
        """Replica groups of open steps."""
        return {group for _, step in self._active_steps() for group in step.target_of_group}

    def moved_jobs(self) -> set[str]:
        """Jobs with a handover in progress."""
        return {job for handover in self.active() for job in handover.plan.jobs}

    def check_none(self, job: str) -> None:
        """Raises PreconditionError while a handover of the job is in progress."""
        for handover in self.active():
            if job in handover.plan.jobs:
                raise PreconditionError(f"job {job}: handover {handover.handover_id} is under way: cancel it or wait")

    def add(self, handover: DrivenHandover) -> list[Effect]:
        """Adds a new handover and journals its intent. Drops the oldest ended handovers beyond ENDED_MAX."""
        self._all[handover.handover_id] = self._open[handover.handover_id] = handover
        ended = [name for name, h in self._all.items() if name not in self._open or h.final]
        dropped = self._drop(ended[: max(len(ended) - ENDED_MAX, 0)])
        return [*dropped, self.persist(handover), Announce(handover.handover_id)]

    def persist(self, handover: DrivenHandover) -> Persist:
        """Journals intent and end of the handover, without its steps."""
        return Persist(handover_key(handover.handover_id), record_of_handover(handover))

    def record(self, handover: DrivenHandover) -> list[Effect]:
        """Journals the changed steps, and announces the handover."""
        effects: list[Effect] = []
        for number, step in enumerate(handover.steps, 1):
            key, record = step_key(handover.handover_id, number), record_of_step(step)
            if step.state is not State.PLANNED and record != self._steps.get(key):
                self._steps[key] = record
                effects.append(Persist(key, record))
        return [*effects, Announce(handover.handover_id)]

    def close(self, handover: DrivenHandover) -> None:
        """The handover has ended, and no group remains to be changed."""
        self._open.pop(handover.handover_id, None)

    def forget(self, job: str) -> list[Effect]:
        """Drops the handovers of the job. All have ended."""
        return self._drop([h.handover_id for h in self.all() if job in h.plan.jobs])

    def _drop(self, handover_ids: Iterable[str]) -> list[Effect]:
        """Removes handovers from memory and from the journal."""
        effects: list[Effect] = []
        for handover_id in handover_ids:
            handover = self._all.pop(handover_id)
            self._open.pop(handover_id, None)
            keys = [step_key(handover_id, number) for number in range(1, len(handover.steps) + 1)]
            journalled = [key for key in keys if self._steps.pop(key, None) is not None]
            effects += [Persist(handover_key(handover_id), None), *(Persist(key, None) for key in journalled)]
        return effects

    def check_invariants(self) -> None:
        nodes = [move.node for _, step in self._active_steps() for move in step.moves]
        assert len(nodes) == len(set(nodes)), "a virtual node is under two handovers"
        assert self._open.items() <= self._all.items(), "a handover that was dropped is driven"
        for handover in self._all.values():
            assert handover.final or handover.handover_id in self._open, handover
            handover.check_invariants()
