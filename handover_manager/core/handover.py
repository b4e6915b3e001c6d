"""One handover as a transition table (Rhino 4.1), with the record that is journalled."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from handover_manager.core.plan import Plan
from rhino.errors import LocalProtocolError
from rhino.ids import GroupId, VirtualNode


class Phase(enum.Enum):
    """Where a handover stands."""

    PLANNED = "planned"
    PREPARING = "preparing"  # the target becomes a member and catches up
    MARKED = "marked"  # the desired location has changed
    CONFIRMED = "confirmed"  # the target wrote a logged batch
    ROLLED_BACK = "rolled_back"
    CANCELLED = "cancelled"
    REDIRECTED = "redirected"  # target lost after the marker: another holder took over

    @property
    def ended(self) -> bool:
        return self not in (Phase.PLANNED, Phase.PREPARING, Phase.MARKED)


class Trigger(enum.Enum):
    """What moves a handover from phase to phase."""

    BEGIN = "begin"  # the plan is journalled
    WHOLE = "whole"  # the target is a whole member of every group
    WRITTEN = "written"  # logged batches written by the target for all stores of all virtual nodes
    DEADLINE = "deadline"
    TARGET_LOST = "target_lost"
    REFUSED = "refused"  # the replication manager refuses for good to change a group
    CANCEL = "cancel"
    RESTART = "restart"  # the manager has come up again


TRANSITIONS: dict[tuple[Phase, Trigger], Phase] = {
    (Phase.PLANNED, Trigger.BEGIN): Phase.PREPARING,
    (Phase.PLANNED, Trigger.RESTART): Phase.ROLLED_BACK,
    (Phase.PREPARING, Trigger.WHOLE): Phase.MARKED,
    (Phase.PREPARING, Trigger.DEADLINE): Phase.ROLLED_BACK,
    (Phase.PREPARING, Trigger.TARGET_LOST): Phase.ROLLED_BACK,
    (Phase.PREPARING, Trigger.REFUSED): Phase.ROLLED_BACK,
    (Phase.PREPARING, Trigger.CANCEL): Phase.CANCELLED,
    (Phase.PREPARING, Trigger.RESTART): Phase.ROLLED_BACK,
    (Phase.MARKED, Trigger.WRITTEN): Phase.CONFIRMED,
    (Phase.MARKED, Trigger.DEADLINE): Phase.ROLLED_BACK,  # the owner's location is asserted again
    (Phase.MARKED, Trigger.TARGET_LOST): Phase.REDIRECTED,
    (Phase.MARKED, Trigger.RESTART): Phase.MARKED,
}


@dataclass(slots=True)
class Handover:
    """A handover's record. Times ending in _ms are wall clock; `deadline` is monotonic seconds, not journalled."""

    handover_id: str
    plan: Plan
    deadline_s: float
    deadline: float
    started_ms: int
    phase: Phase = Phase.PLANNED
    reason: str = ""
    configuration_epoch: int = 0
    marked_ms: int = 0
    finished_ms: int = 0
    confirmed_batch_id: int = -1
    bytes_moved: int = 0
    baseline_bytes: dict[GroupId, int] = field(default_factory=dict)  # target's bytes at the start, where not whole
    waiting_for: set[VirtualNode] = field(default_factory=set)  # not yet prepared or confirmed
    settling: set[GroupId] = field(default_factory=set)  # confirmed, the target not yet seen as owner
    unwinding: set[GroupId] = field(default_factory=set)  # given up; the chain may still be longer than asked for
    last_error: str = ""  # of a group change that is tried again
    in_flight: set[GroupId] = field(default_factory=set)  # group changes that have not been answered
    history: list[tuple[Trigger, Phase]] = field(default_factory=list)

    @property
    def target(self) -> str:
        return self.plan.target

    def advance(self, trigger: Trigger, reason: str = "") -> None:
        """Takes the transition of `trigger`; raises LocalProtocolError with the history when there is none."""
        following = TRANSITIONS.get((self.phase, trigger))
        if following is None:
            steps = " > ".join(["planned", *(f"{t.value}: {p.value}" for t, p in self.history)])
            raise LocalProtocolError(
                f"handover {self.handover_id}: {trigger.value} is impossible in phase {self.phase.value} ({steps})"
            )
        self.phase = following
        self.history.append((trigger, following))
        if reason:
            self.reason = reason

    def check_invariants(self) -> None:
        """Raises AssertionError when the record contradicts itself."""
        assert self.phase.ended == bool(self.finished_ms), self
        assert not self.settling or self.phase is Phase.CONFIRMED, self
        assert not self.unwinding or (self.phase.ended and self.phase is not Phase.CONFIRMED), self
        assert self.waiting_for <= {move.node for move in self.plan.moves}, self
        assert (self.phase in (Phase.MARKED, Phase.CONFIRMED, Phase.REDIRECTED)) <= bool(self.configuration_epoch), self
        assert (self.phase is Phase.CONFIRMED) == (self.confirmed_batch_id >= 0), self


def diagram() -> str:
    """The state machine as Mermaid text, from the table."""
    arrows = [f"    {a.value} --> {b.value}: {t.value}" for (a, t), b in TRANSITIONS.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> planned", *arrows])
