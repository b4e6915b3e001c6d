"""The states of a step (Rhino 4.1) as a transition table: prepare, mark, confirm, and the rest of the work."""

from __future__ import annotations

import enum

from rhino_core.transitions import TransitionTable
from rhino_model.handovers import Phase


class State(enum.Enum):
    """The state of a step. After its end groups may still have to change: targets become owners, chains are cut."""

    PLANNED = "planned"
    PREPARING = "preparing"
    MARKED = "marked"
    SETTLING = "settling"  # confirmed; the targets stay desired until they are seen as owners
    CONFIRMED = "confirmed"
    ROLLING_BACK = "rolling_back"  # the chains that the step made longer are cut again
    ROLLED_BACK = "rolled_back"
    CANCELLING = "cancelling"  # the same
    CANCELLED = "cancelled"
    REDIRECTING = "redirecting"  # both: some targets become owners, and the chains of the lost ones are cut
    REDIRECTED = "redirected"

    @property
    def phase(self) -> Phase:
        return _PHASES.get(self) or Phase(self.value)

    @property
    def ended(self) -> bool:
        return self.phase.ended

    @property
    def final(self) -> bool:
        """Whether nothing remains to be done."""
        return self.ended and self not in _PHASES


_REMAINING = {
    Phase.CONFIRMED: State.SETTLING,
    Phase.ROLLED_BACK: State.ROLLING_BACK,
    Phase.CANCELLED: State.CANCELLING,
    Phase.REDIRECTED: State.REDIRECTING,
}
_PHASES = {state: phase for phase, state in _REMAINING.items()}


class Trigger(enum.Enum):
    """The causes of transitions."""

    BEGIN = "begin"  # the plan is journalled, and the step has its turn
    WHOLE = "whole"  # the targets are whole members of every group, and the step before is confirmed
    WRITTEN = "written"  # the targets wrote logged batches for all stores of all virtual nodes
    IDLE = "idle"  # no batch runs, and the next one will use the map with the marker
    DEADLINE = "deadline"
    # a target was lost; after the marker only once every other virtual node of the step is confirmed
    TARGET_LOST = "target_lost"
    REFUSED = "refused"  # the replication manager permanently refuses to change a group
    CANCEL = "cancel"  # requested, or a step before has failed
    RESTART = "restart"  # the manager has restarted
    CLEAN = "clean"  # no group remains to be changed


TRANSITIONS = TransitionTable(
    State.PLANNED,
    {
        (State.PLANNED, Trigger.BEGIN): State.PREPARING,
        (State.PLANNED, Trigger.CANCEL): State.CANCELLED,
        (State.PLANNED, Trigger.RESTART): State.ROLLED_BACK,
        (State.PREPARING, Trigger.WHOLE): State.MARKED,
        (State.PREPARING, Trigger.DEADLINE): State.ROLLING_BACK,
        (State.PREPARING, Trigger.TARGET_LOST): State.ROLLING_BACK,
        (State.PREPARING, Trigger.REFUSED): State.ROLLING_BACK,
        (State.PREPARING, Trigger.CANCEL): State.CANCELLING,
        (State.PREPARING, Trigger.RESTART): State.ROLLING_BACK,
        (State.MARKED, Trigger.WRITTEN): State.SETTLING,
        (State.MARKED, Trigger.IDLE): State.SETTLING,
        (State.MARKED, Trigger.DEADLINE): State.ROLLING_BACK,  # the owners are desired again
        (State.MARKED, Trigger.TARGET_LOST): State.REDIRECTING,
        (State.MARKED, Trigger.RESTART): State.MARKED,
        (State.SETTLING, Trigger.CLEAN): State.CONFIRMED,
        (State.SETTLING, Trigger.RESTART): State.SETTLING,
        (State.ROLLING_BACK, Trigger.CLEAN): State.ROLLED_BACK,
        (State.ROLLING_BACK, Trigger.RESTART): State.ROLLING_BACK,
        (State.CANCELLING, Trigger.CLEAN): State.CANCELLED,
        (State.CANCELLING, Trigger.RESTART): State.CANCELLING,
        (State.REDIRECTING, Trigger.CLEAN): State.REDIRECTED,
        (State.REDIRECTING, Trigger.RESTART): State.REDIRECTING,
    },
)


def state_of(phase: Phase, *, clean: bool) -> State:
    """The state of a step in this phase. `clean`: no group remains to be changed."""
    return State(phase.value) if clean else _REMAINING[phase]
