"""One step of a handover: its moves are prepared, marked and confirmed together. One small record for each phase."""

from __future__ import annotations

from dataclasses import dataclass, field

from handover_manager.drive.states import TRANSITIONS, State, Trigger
from handover_manager.view import ClusterView
from rhino_core.errors import LocalProtocolError, RhinoError
from rhino_core.ids import GroupId, VirtualNode
from rhino_model.handovers import Move, Phase


@dataclass(slots=True)
class Preparation:
    """Targets become members and catch up. Times are monotonic."""

    begun_at: float
    baseline_bytes: dict[GroupId, int]  # bytes that the target stored at the start, where it was not whole
    whole_at: float | None = None  # when the targets had everything

    @property
    def copied_s(self) -> float:
        return 0.0 if self.whole_at is None else self.whole_at - self.begun_at


@dataclass(slots=True)
class Marker:
    """The desired locations have changed. `set_ms` is wall clock."""

    configuration_epochs: dict[str, int]  # by job
    set_ms: int
    set_at: float | None  # monotonic; None: a former process has set the marker
    redirected: set[VirtualNode] = field(default_factory=set)  # their target was lost since


@dataclass(slots=True)
class Outcome:
    """The end of a step. `finished_ms` is wall clock.

    `batch_id` is the id of the confirming batch. None: there was none, because the query was idle, or the step was not
    confirmed. `pause_s` is measured; see StepMeasurement.
    """

    finished_ms: int
    batch_id: int | None = None
    pause_s: float | None = None


@dataclass(slots=True)
class GroupChanges:
    """Changes of groups requested by the step."""

    in_flight: set[GroupId] = field(default_factory=set)  # without an answer so far
    answered_at: dict[GroupId, float] = field(default_factory=dict)  # monotonic time of the last answer
    last_error: str = ""  # of a change that is tried again

    def ask(self, groups: list[GroupId]) -> list[GroupId]:
        """Those of `groups` that may be changed now."""
        fresh = [group for group in groups if group not in self.in_flight]
        self.in_flight.update(fresh)
        return fresh

    def answered(self, group: GroupId, error: RhinoError | None, now: float) -> None:
        self.in_flight.discard(group)
        self.answered_at[group] = now
        if error is not None:
            self.last_error = str(error)

    def unseen(self, seen_at: float) -> set[GroupId]:
        """Groups whose changes a view of that time may not show yet."""
        return self.in_flight | {group for group, at in self.answered_at.items() if at > seen_at}


@dataclass(slots=True, eq=False)
class DrivenStep:
    """The record of a step. `reason` and `name` are for people. `deadline` is monotonic time.

    `settling` has groups whose target is to become the owner, `unwinding` groups whose chain may still be too long.
    """

    name: str
    moves: tuple[Move, ...]
    state: State = State.PLANNED
    reason: str = ""
    deadline: float | None = None  # set when the step gets its turn
    missing_bytes: int | None = None  # the least that targets lacked of their groups, at its begin and at deadlines
    waiting_for: set[VirtualNode] = field(default_factory=set)  # not prepared or not confirmed yet
    bytes_moved: int = 0
    preparation: Preparation | None = None
    marker: Marker | None = None
    outcome: Outcome | None = None
    settling: set[GroupId] = field(default_factory=set)
    unwinding: set[GroupId] = field(default_factory=set)
    changes: GroupChanges = field(default_factory=GroupChanges)
    history: list[tuple[Trigger, State]] = field(default_factory=list)

    def copies_nearer(self, view: ClusterView) -> bool:
        """Whether the targets lack fewer bytes than ever before. All members get new versions: these do not count."""
        missing, before = 0, self.missing_bytes
        for group, target in self.target_of_group.items():
            if (seen := view.groups.get(group)) is not None and not seen.is_whole(target):
                missing += max(seen.stored_bytes.values(), default=0) - seen.stored_bytes.get(target, 0)
        self.missing_bytes = missing if before is None else min(before, missing)
        return before is not None and missing < before

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def configuration_epochs(self) -> dict[str, int]:
        """By job, from the marker on."""
        return {} if self.marker is None else self.marker.configuration_epochs

    @property
    def redirected(self) -> set[VirtualNode]:
        """Virtual nodes with a target lost after the marker."""
        return set() if self.marker is None else self.marker.redirected

    @property
    def target_of(self) -> dict[VirtualNode, str]:
        return {move.node: move.target for move in self.moves}

    @property
    def target_of_group(self) -> dict[GroupId, str]:
        return {group: move.target for move in self.moves for group in move.groups()}

    @property
    def origin_of_group(self) -> dict[GroupId, str]:
        """The worker to give a group back to. Virtual nodes that do not move have none."""
        return {group: move.origin for move in self.moves if move.origin != move.target for group in move.groups()}

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
        """Takes the transition of `trigger`. Raises LocalProtocolError with the history if there is none."""
        try:
            self.state = TRANSITIONS.next(self.state, trigger)
        except LocalProtocolError as error:
            steps = " > ".join([State.PLANNED.value, *(f"{t.value}: {s.value}" for t, s in self.history)])
            raise LocalProtocolError(f"{self.name}: {error} ({steps})") from None
        self.history.append((trigger, self.state))
        if reason:
            self.reason = reason

    def clean(self) -> None:
        """Takes the transition to the final state once no group remains to be changed."""
        if self.state.ended and not self.state.final and not self.settling and not self.unwinding:
            self.advance(Trigger.CLEAN)

    def check_invariants(self) -> None:
        """Raises AssertionError if the record contradicts itself."""
        marked = self.phase in (Phase.MARKED, Phase.CONFIRMED, Phase.REDIRECTED)
        assert self.state.ended == (self.outcome is not None), self
        assert not self.settling or self.state in (State.SETTLING, State.REDIRECTING), self
        assert not self.unwinding or self.state in (State.ROLLING_BACK, State.CANCELLING, State.REDIRECTING), self
        assert self.waiting_for <= self.nodes, self
        assert marked <= (self.marker is not None), self
        if self.phase is Phase.CONFIRMED:
            assert self.outcome is not None, self
            assert self.outcome.batch_id is not None or self.reason, self
        assert self.redirected <= self.nodes, self
