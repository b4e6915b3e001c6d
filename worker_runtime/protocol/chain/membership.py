"""One group as seen by one worker: the adopted epoch, and this worker's progress as a member under it.

After a member has adopted an epoch, it asks every other member for its inventory, and pulls its missing files above the
floor. Then it is whole (ARCHITECTURE.md, "Catch-up and anti-entropy"; Rhino 4.2.2, phase 1).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rhino_core.ids import Epoch, ReplicaGroup, Worker
from rhino_core.transitions import TransitionTable
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.keys import Incarnation, incarnation_of

REPAIR_S = 15.0  # time without an incoming file before a catch-up repairs an incomplete version
SWEEP_S = 60.0  # interval at which a whole member compares inventories


class MemberState(enum.Enum):
    """How far this worker is in a group, by its own account."""

    OUTSIDE = "outside"  # no member of the adopted group
    CATCHING_UP = "catching_up"  # a member that may lack files
    WHOLE = "whole"
    COMPARING = "comparing"  # whole, and a catch-up compares the inventories once more

    @property
    def whole(self) -> bool:
        return self is MemberState.WHOLE or self is MemberState.COMPARING


class MemberTrigger(enum.Enum):
    """The causes of transitions."""

    # The members are other incarnations than the last catch-up covered, or the manager no longer counts this worker as
    # whole, or files were damaged here.
    BEHIND = "catch_up_needed"
    ALONE = "no_other_members"
    CAUGHT_UP = "caught_up"
    COMPARE = "repair_or_sweep_due"
    LEFT = "left"


_State, _Trigger = MemberState, MemberTrigger
MEMBER = TransitionTable(
    MemberState.OUTSIDE,
    {
        (_State.OUTSIDE, _Trigger.BEHIND): _State.CATCHING_UP,
        (_State.OUTSIDE, _Trigger.ALONE): _State.WHOLE,
        (_State.OUTSIDE, _Trigger.LEFT): _State.OUTSIDE,
        (_State.CATCHING_UP, _Trigger.CAUGHT_UP): _State.WHOLE,
        (_State.CATCHING_UP, _Trigger.BEHIND): _State.CATCHING_UP,  # a new catch-up replaces the running one
        (_State.CATCHING_UP, _Trigger.ALONE): _State.WHOLE,
        (_State.CATCHING_UP, _Trigger.LEFT): _State.OUTSIDE,
        (_State.WHOLE, _Trigger.COMPARE): _State.COMPARING,
        (_State.WHOLE, _Trigger.BEHIND): _State.CATCHING_UP,
        (_State.WHOLE, _Trigger.ALONE): _State.WHOLE,
        (_State.WHOLE, _Trigger.LEFT): _State.OUTSIDE,
        (_State.COMPARING, _Trigger.CAUGHT_UP): _State.WHOLE,
        (_State.COMPARING, _Trigger.BEHIND): _State.CATCHING_UP,
        (_State.COMPARING, _Trigger.ALONE): _State.WHOLE,
        (_State.COMPARING, _Trigger.LEFT): _State.OUTSIDE,
    },
)


@dataclass(slots=True)
class _Repair:
    """A catch-up, due at `at` if a version is incomplete then. Scheduled at `since`; monotonic seconds."""

    since: float
    at: float


class GroupState:
    """State of one group in `ChainMachine`."""

    def __init__(self, group: ReplicaGroup) -> None:
        self.group = group
        self.state = MEMBER.first
        self._covered: frozenset[Incarnation] = frozenset()  # members that the newest catch-up covers
        self._catch_up_epoch: Epoch | None = None  # of the running catch-up
        self._repair: _Repair | None = None
        self._sweep_at: float | None = None

    @property
    def whole(self) -> bool:
        """Whether this worker is a whole member under the adopted epoch."""
        return self.state.whole

    @property
    def outside(self) -> bool:
        return self.state is MemberState.OUTSIDE

    def next_deadline(self) -> float | None:
        """When `tick` would start a catch-up; None while one is running."""
        if self._catch_up_epoch is not None:
            return None
        if self._repair is None or self._sweep_at is None:
            return self._sweep_at if self._repair is None else self._repair.at
        return min(self._repair.at, self._sweep_at)

    def check_invariants(self) -> None:
        running = self.state in (MemberState.CATCHING_UP, MemberState.COMPARING)
        assert running == (self._catch_up_epoch is not None), f"{self.group.group}: {self.state}"
        assert self._catch_up_epoch is None or self._catch_up_epoch <= self.group.epoch, "a catch-up of a later epoch"
        assert not self.outside or (self._repair is None and self._sweep_at is None), f"{self.group.group}: due outside"

    def adopt(self, new: ReplicaGroup, me: Worker) -> list[ev.Effect]:
        """Adopt a newer epoch. Start a catch-up unless the last one covered the same members.

        A catch-up is also needed after a member has left: it may have acknowledged a file without forwarding it. The
        same applies when the manager no longer counts this member as whole. Since then, commits may not have waited for
        this member. An earlier catch-up may have read the inventories before those commits.
        """
        before, mine = self.group.member(me.worker_id), new.member(me.worker_id)
        self.group = new
        if mine is None:
            self._advance(MemberTrigger.LEFT)
            self._covered, self._catch_up_epoch, self._repair, self._sweep_at = frozenset(), None, None, None
            return []
        members = frozenset(incarnation_of(m.worker) for m in new.members)
        discounted = before is not None and before.whole and not mine.whole
        stays_whole = self.state.whole and mine.whole
        goes_on = self.state is MemberState.CATCHING_UP and not discounted
        if members == self._covered and (stays_whole or goes_on):
            return []
        self._covered = members
        return self._start(MemberTrigger.BEHIND, me)

    def finished(self, epoch: Epoch, now: float, *, incomplete: bool) -> bool:
        """The catch-up of `epoch` has ended. `incomplete`: a version pushed here still lacks files.

        Return true if this member has just become whole. Outdated catch-ups are ignored.
        """
        if epoch != self._catch_up_epoch:
            return False
        self._catch_up_epoch = None
        self._sweep_at = now + SWEEP_S
        if incomplete:
            self._repair = _Repair(now, now + REPAIR_S)
        became = not self.whole
        self._advance(MemberTrigger.CAUGHT_UP)
        return became

    def plan_repair(self, now: float) -> None:
        """A version is incomplete: if this worker is a member, schedule a catch-up in case the version does not
        complete by itself.
        """
        if self._repair is None and not self.outside:
            self._repair = _Repair(now, now + REPAIR_S)

    def progress(self, now: float) -> bool:
        """A file of the group arrived, so an incomplete version may still complete by itself: postpone the repair, but
        not for ever.

        Return true if the deadline has moved.
        """
        if self._repair is None:
            return False
        self._repair.at = min(now, self._repair.since + REPAIR_S) + REPAIR_S
        return True

    def damaged(self, me: Worker) -> list[ev.Effect]:
        """Files of the group are missing here: this member is not whole until a catch-up has ended."""
        return [] if self.outside else self._start(MemberTrigger.BEHIND, me)

    def tick(self, me: Worker, now: float, *, incomplete: bool) -> list[ev.Effect]:
        """Starts a catch-up if a repair or the periodic comparison of inventories is due."""
        due = self.next_deadline()
        if due is None or due > now:
            return []
        sweep = self._sweep_at is not None and self._sweep_at <= now
        self._repair = None
        if not sweep and not incomplete:
            return []  # the version has completed by itself
        self._sweep_at = None
        return self._start(MemberTrigger.COMPARE, me)

    def _start(self, trigger: MemberTrigger, me: Worker) -> list[ev.Effect]:
        """Starts a catch-up from the other members. If there are none, this member is whole at once."""
        self._repair = None
        others = tuple(m.worker for m in self.group.members if m.worker.worker_id != me.worker_id)
        if not others:
            self._advance(MemberTrigger.ALONE)
            self._catch_up_epoch, self._sweep_at = None, None
            return []
        self._advance(trigger)
        self._catch_up_epoch = self.group.epoch
        comparing = self.state is MemberState.COMPARING
        return [ev.StartCatchUp(self.group.group, self.group.epoch, others, whole=comparing)]

    def _advance(self, trigger: MemberTrigger) -> None:
        self.state = MEMBER.next(self.state, trigger)
