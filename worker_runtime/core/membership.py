"""One group as seen by one member: the epoch adopted, and whether this member is whole under it.

Whole means: after adopting the epoch this worker has asked every other member for its inventory and has pulled what
it lacked above the floor (ARCHITECTURE.md, "Catch-up and anti-entropy"; Rhino 4.2.2, phase 1).
"""

from __future__ import annotations

from rhino.ids import Epoch, ReplicaGroup, Worker
from worker_runtime.core import events as ev

REPAIR_S = 15.0  # without any file coming in, after which an incomplete version is repaired by a catch-up
SWEEP_S = 60.0  # a whole member compares inventories this often


def life(worker: Worker) -> tuple[str, str]:
    """A worker's id and incarnation: a new incarnation has lost what the old one held."""
    return worker.worker_id, worker.incarnation


class GroupState:
    """State of one group in `ChainMachine`."""

    def __init__(self, group: ReplicaGroup) -> None:
        self.group = group
        self.whole_epoch: Epoch | None = None
        self._lives: frozenset[tuple[str, str]] = frozenset()  # members that the newest catch-up covers
        self._catch_up_epoch: Epoch | None = None  # of the catch-up that runs
        self._repair_at: float | None = None
        self._incomplete_at = 0.0  # since when the repair has been due
        self._sweep_at: float | None = None

    def next_deadline(self) -> float | None:
        """When `tick` would start a catch-up; none while one runs."""
        if self._catch_up_epoch is not None:
            return None
        return min((at for at in (self._repair_at, self._sweep_at) if at is not None), default=None)

    def adopt(self, new: ReplicaGroup, me: Worker, now: float) -> list[ev.Effect]:
        """Takes a newer epoch; catches up unless the members are those that the last catch-up covered.

        Also when a member has left: it may have acknowledged a file without having forwarded it. And when the manager
        does not count this one as whole: commits may not have waited for it.
        """
        was_whole = self.whole_epoch is not None and self.whole_epoch == self.group.epoch
        self.group = new
        self.whole_epoch = None
        lives = frozenset(life(m.worker) for m in new.members)
        mine = new.member(me.worker_id)
        if mine is None:
            self._lives, self._catch_up_epoch, self._repair_at, self._sweep_at = frozenset(), None, None, None
            return []
        was_whole = was_whole and mine.whole
        if lives == self._lives and (was_whole or self._catch_up_epoch is not None):
            self.whole_epoch = new.epoch if was_whole else None
            return []
        self._lives = lives
        return self.start(me, now)

    def start(self, me: Worker, now: float) -> list[ev.Effect]:
        """Starts a catch-up from the other members; without any, this member is whole at once."""
        self._repair_at = None
        others = tuple(m.worker for m in self.group.members if m.worker.worker_id != me.worker_id)
        if not others:
            self.whole_epoch, self._catch_up_epoch, self._sweep_at = self.group.epoch, None, None
            return []
        self._catch_up_epoch = self.group.epoch
        whole = self.whole_epoch == self.group.epoch
        return [ev.StartCatchUp(self.group.group, self.group.epoch, others, whole)]

    def finished(self, epoch: Epoch, now: float, *, incomplete: bool) -> bool:
        """The catch-up of `epoch` is done; true when this member has just become whole. Outdated ones are ignored."""
        if epoch != self._catch_up_epoch:
            return False
        self._catch_up_epoch = None
        self._sweep_at = now + SWEEP_S
        if incomplete:
            self._incomplete_at = now
            self._repair_at = now + REPAIR_S
        became = self.whole_epoch != self.group.epoch
        self.whole_epoch = self.group.epoch
        return became

    def plan_repair(self, me: Worker, now: float) -> None:
        """Something is incomplete: a catch-up of a member is due soon unless it completes by itself."""
        if self._repair_at is None and self.group.member(me.worker_id) is not None:
            self._incomplete_at = now
            self._repair_at = now + REPAIR_S

    def progress(self, now: float) -> bool:
        """A file of the group came in: what is incomplete may become complete by itself, but not put off for ever.

        True when the deadline has moved.
        """
        if self._repair_at is None:
            return False
        self._repair_at = min(now, self._incomplete_at + REPAIR_S) + REPAIR_S
        return True

    def damaged(self, me: Worker, now: float) -> list[ev.Effect]:
        """Files have gone that should be here: not whole until a catch-up has ended."""
        if self.group.member(me.worker_id) is None:
            return []
        self.whole_epoch = None
        return self.start(me, now)

    def tick(self, me: Worker, now: float, *, incomplete: bool) -> list[ev.Effect]:
        """Repairs what is still incomplete, and compares inventories now and then."""
        due = self.next_deadline()
        if due is None or due > now or self.group.member(me.worker_id) is None:
            return []
        only_repair = self._repair_at is not None and self._repair_at <= now
        self._repair_at = None
        if only_repair and not incomplete and not (self._sweep_at is not None and self._sweep_at <= now):
            return []
        self._sweep_at = None
        return self.start(me, now)
