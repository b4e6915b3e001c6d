"""One step of a handover as a transition table (Rhino 4.1): its moves are prepared, marked and confirmed together."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from handover_manager.core.move import Move
from rhino.errors import LocalProtocolError
from rhino.ids import GroupId, VirtualNode


class Phase(enum.Enum):
    """Where a step stands, and a handover: at its first step that has not ended."""

    PLANNED = "planned"
    PREPARING = "preparing"  # the targets become members and catch up
    MARKED = "marked"  # the desired locations have changed
    CONFIRMED = "confirmed"  # the targets wrote a logged batch, or will write the next one of an idle query
    ROLLED_BACK = "rolled_back"
    CANCELLED = "cancelled"
    REDIRECTED = "redirected"  # a target lost after the marker: other holders took over

    @property
    def ended(self) -> bool:
        return self not in (Phase.PLANNED, Phase.PREPARING, Phase.MARKED)


class Trigger(enum.Enum):
    """What moves a step from phase to phase."""

    BEGIN = "begin"  # the plan is journalled, and it is its turn
    WHOLE = "whole"  # the targets are whole members of every group, and the step before is confirmed
    WRITTEN = "written"  # logged batches written by the targets for all stores of all virtual nodes
    IDLE = "idle"  # no batch runs, and the next one goes by the marker's map
    DEADLINE = "deadline"
    TARGET_LOST = "target_lost"  # after the marker: and every other virtual node of the step is confirmed
    REFUSED = "refused"  # the replication manager refuses for good to change a group
    CANCEL = "cancel"  # asked for, or a step before has failed
    RESTART = "restart"  # the manager has come up again


TRANSITIONS: dict[tuple[Phase, Trigger], Phase] = {
    (Phase.PLANNED, Trigger.BEGIN): Phase.PREPARING,
    (Phase.PLANNED, Trigger.CANCEL): Phase.CANCELLED,
    (Phase.PLANNED, Trigger.RESTART): Phase.ROLLED_BACK,
    (Phase.PREPARING, Trigger.WHOLE): Phase.MARKED,
    (Phase.PREPARING, Trigger.DEADLINE): Phase.ROLLED_BACK,
    (Phase.PREPARING, Trigger.TARGET_LOST): Phase.ROLLED_BACK,
    (Phase.PREPARING, Trigger.REFUSED): Phase.ROLLED_BACK,
    (Phase.PREPARING, Trigger.CANCEL): Phase.CANCELLED,
    (Phase.PREPARING, Trigger.RESTART): Phase.ROLLED_BACK,
    (Phase.MARKED, Trigger.WRITTEN): Phase.CONFIRMED,
    (Phase.MARKED, Trigger.IDLE): Phase.CONFIRMED,
    (Phase.MARKED, Trigger.DEADLINE): Phase.ROLLED_BACK,  # the owners' locations are asserted again
    (Phase.MARKED, Trigger.TARGET_LOST): Phase.REDIRECTED,
    (Phase.MARKED, Trigger.RESTART): Phase.MARKED,
}


@dataclass(slots=True)
class Step:
    """A step's record. Times ending in _ms are wall clock; `_at` and `deadline` are monotonic, not journalled."""

    name: str  # for people
    moves: tuple[Move, ...]
    phase: Phase = Phase.PLANNED
    reason: str = ""
    configuration_epochs: dict[str, int] = field(default_factory=dict)  # by job, from the marker on
    marked_ms: int = 0
    finished_ms: int = 0
    confirmed_batch_id: int = -1  # stays so when an idle query's step is confirmed
    bytes_moved: int = 0
    pause_s: float | None = None  # measured: see StepFigure
    redirected: set[VirtualNode] = field(default_factory=set)  # their target was lost after the marker
    settling: set[GroupId] = field(default_factory=set)  # confirmed, the target not yet seen as owner
    deadline: float | None = None  # set when it is the step's turn
    begun_at: float = 0.0
    copied_s: float = 0.0  # from then until the targets had everything
    marked_at: float = 0.0
    baseline_bytes: dict[GroupId, int] = field(default_factory=dict)  # target's bytes at the start, where not whole
    waiting_for: set[VirtualNode] = field(default_factory=set)  # not yet prepared or confirmed
    unwinding: set[GroupId] = field(default_factory=set)  # given up; the chain may still be longer than asked for
    last_error: str = ""  # of a group change that is tried again
    in_flight: set[GroupId] = field(default_factory=set)  # group changes that have not been answered
    answered_at: dict[GroupId, float] = field(default_factory=dict)  # the last that was: a view from before lacks it
    noted: dict[str, object] | None = None  # as journalled; None: not yet, for it has not begun
    history: list[tuple[Trigger, Phase]] = field(default_factory=list)

    @property
    def target_of(self) -> dict[VirtualNode, str]:
        return {move.node: move.target for move in self.moves}

    @property
    def target_of_group(self) -> dict[GroupId, str]:
        return {group: move.target for move in self.moves for group in move.groups}

    @property
    def origin_of_group(self) -> dict[GroupId, str]:
        return {group: move.origin for move in self.moves for group in move.groups}

    @property
    def targets(self) -> list[str]:
        return sorted({move.target for move in self.moves})

    @property
    def nodes(self) -> set[VirtualNode]:
        return {move.node for move in self.moves}

    def of_job(self) -> dict[str, list[Move]]:
        found: dict[str, list[Move]] = {}
        for move in self.moves:
            found.setdefault(move.node.job, []).append(move)
        return found

    def advance(self, trigger: Trigger, reason: str = "") -> None:
        """Takes the transition of `trigger`; raises LocalProtocolError with the history when there is none."""
        following = TRANSITIONS.get((self.phase, trigger))
        if following is None:
            steps = " > ".join(["planned", *(f"{t.value}: {p.value}" for t, p in self.history)])
            raise LocalProtocolError(
                f"{self.name}: {trigger.value} is impossible in phase {self.phase.value} ({steps})"
            )
        self.phase = following
        self.history.append((trigger, following))
        if reason:
            self.reason = reason

    def check_invariants(self) -> None:
        """Raises AssertionError when the record contradicts itself."""
        marked = self.phase in (Phase.MARKED, Phase.CONFIRMED, Phase.REDIRECTED)
        assert self.phase.ended == bool(self.finished_ms), self
        assert not self.settling or self.phase in (Phase.CONFIRMED, Phase.REDIRECTED), self
        assert not self.unwinding or (self.phase.ended and self.phase is not Phase.CONFIRMED), self
        assert self.waiting_for <= self.nodes, self
        assert marked <= bool(self.configuration_epochs), self
        assert (self.phase is Phase.CONFIRMED) <= (self.confirmed_batch_id >= 0 or bool(self.reason)), self
        assert self.redirected <= self.nodes, self
        assert not self.redirected or self.configuration_epochs, self


def diagram() -> str:
    """The state machine as Mermaid text, from the table."""
    arrows = [f"    {a.value} --> {b.value}: {t.value}" for (a, t), b in TRANSITIONS.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> planned", *arrows])
