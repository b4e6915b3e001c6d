"""The groups adopted by this worker, the epochs seen, and the fences of forgotten jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from rhino_core.ids import NO_EPOCH, Epoch, GroupId, ReplicaGroup, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.membership import GroupState
from worker_runtime.protocol.keys import incarnation_of

FORMER_EPOCHS = 3  # epochs may follow each other faster than files
NOBODY: Collection[str] = frozenset()


class Writers:
    """Worker ids by group. `members`: of the newest epochs seen by an earlier process.

    A guest has to be allowed again under each epoch: its executors may have ended.
    """

    def __init__(self, members: Mapping[GroupId, Collection[str]]) -> None:
        self._members = dict(members)
        self._former: dict[GroupId, tuple[Collection[str], ...]] = {}  # under the epochs before, the newest first
        self._guests: dict[GroupId, set[str]] = {}

    def members(self, group: GroupId) -> Collection[str]:
        """The members under the newest epoch. Empty: not known."""
        return self._members.get(group, NOBODY)

    def adopted(self, group: ReplicaGroup) -> None:
        """The group has a newer epoch."""
        before, now = self.members(group.group), frozenset(member.worker.worker_id for member in group.members)
        if before and before != now:
            self._former[group.group] = (before, *self._former.get(group.group, ()))[:FORMER_EPOCHS]
        self._members[group.group] = now
        self._guests.pop(group.group, None)

    def left(self, group: GroupId) -> None:
        """The group no longer concerns this worker, so it does not hear of changes."""
        self._members.pop(group, None)

    def allow(self, group: GroupId, guest: str) -> None:
        """The manager allows a guest, under the newest epoch."""
        self._guests.setdefault(group, set()).add(guest)

    def may_write(self, group: GroupId, worker_id: str) -> bool:
        named = (self.members(group), self._guests.get(group, NOBODY), *self._former.get(group, ()))
        return any(worker_id in workers for workers in named)

    def forget(self, group: GroupId) -> None:
        self._members.pop(group, None)
        self._former.pop(group, None)
        self._guests.pop(group, None)


class Groups:
    """`epochs`: the highest epoch seen of each group. `fences`: of forgotten jobs; epochs below them are void.

    `members`: the members under these epochs, as far as they are known. `writers`: the allowed senders of files.
    """

    def __init__(
        self,
        me: Worker,
        epochs: Mapping[GroupId, Epoch],
        fences: Mapping[str, Epoch],
        members: Mapping[GroupId, Collection[str]],
    ) -> None:
        self._me = me
        self._epochs = dict(epochs)
        self._fences = dict(fences)
        self.writers = Writers(members)
        self._states: dict[GroupId, GroupState] = {}
        self._deadline: float | None = None
        self._deadline_valid = True  # else `_deadline` has to be computed again

    # ------------------------------------------------------------ queries

    def get(self, group: GroupId) -> ReplicaGroup | None:
        """The group as last adopted."""
        state = self._states.get(group)
        return state.group if state else None

    def state(self, group: GroupId) -> GroupState | None:
        """The adopted group with this worker's part in it. Only this class changes it."""
        return self._states.get(group)

    def ids(self) -> Iterable[GroupId]:
        return self._states.keys()

    def whole(self, group: GroupId) -> bool:
        """Whether this worker is a whole member under the adopted epoch."""
        state = self._states.get(group)
        return state is not None and state.whole

    def epoch(self, group: GroupId) -> Epoch:
        """The highest epoch named by the manager; NO_EPOCH for an unknown group."""
        seen, fence = self._epochs.get(group, NO_EPOCH), self._fences.get(group.job)
        return seen if fence is None else max(seen, fence)

    def fence(self, job: str) -> Epoch:
        """NO_EPOCH for a job never forgotten."""
        return self._fences.get(job, NO_EPOCH)

    def forgotten(self, group: GroupId) -> bool:
        """Whether the group's job has ended for good and the manager has not created the group again since."""
        return group.job in self._fences and self._epochs.get(group, NO_EPOCH) < self._fences[group.job]

    def outlived(self, group: GroupId, epoch: Epoch) -> bool:
        """Whether the manager has created the group again since `epoch`, after its job was forgotten."""
        return epoch < self.fence(group.job) and not self.forgotten(group)

    def highest_epoch(self) -> Epoch:
        """The highest epoch over all groups and fences. The worker reports it at Register."""
        return max((*self._epochs.values(), *self._fences.values()), default=NO_EPOCH)

    def known(self) -> set[GroupId]:
        """Adopted groups, and groups of which an epoch was seen."""
        return {*self._states, *self._epochs}

    def next_deadline(self) -> float | None:
        """When a catch-up is due. Computed rarely: there are many groups, and their deadlines seldom change."""
        if not self._deadline_valid:
            self._deadline, self._deadline_valid = self._earliest(), True
        return self._deadline

    def check_invariants(self) -> None:
        assert not self._deadline_valid or self._deadline == self._earliest(), "a deadline was missed"
        for group, state in self._states.items():
            assert state.group.epoch == self._epochs[group], "the epoch adopted is the one persisted"
            outside = state.group.member(self._me.worker_id) is None
            assert outside == state.outside, f"{group}: {state.state}, member: {not outside}"
            state.check_invariants()

    def _earliest(self) -> float | None:
        deadlines = (state.next_deadline() for state in self._states.values())
        return min((at for at in deadlines if at is not None), default=None)

    # ------------------------------------------------------------ epochs

    def adopt(self, new: ReplicaGroup) -> list[ev.Effect]:
        """Adopt a newer epoch."""
        effects: list[ev.Effect] = []
        if new.epoch > self.epoch(new.group):
            self._epochs[new.group] = new.epoch
            effects.append(ev.PersistEpoch(new.group, new.epoch, tuple(m.worker.worker_id for m in new.members)))
        self.writers.adopted(new)
        state = self._states.setdefault(new.group, GroupState(new))
        effects += state.adopt(new, self._me)
        self._deadline_valid = False
        return [*effects, ev.ReportGroup(new.group)]

    def change_addresses(self, same: ReplicaGroup) -> bool:
        """Takes over addresses from another description of the adopted epoch. Returns whether its members are the same.

        If they are not, two managers issued the same epoch. The first group stays, because acks under the epoch were
        given for it.
        """
        state = self._states[same.group]
        if _members(same) != _members(state.group):
            return False
        state.group = same
        return True

    def leave(self, group: GroupId) -> None:
        """The group no longer concerns this worker. Its epoch stays known."""
        self._states.pop(group, None)
        self.writers.left(group)
        self._deadline_valid = False

    def forget(self, group: GroupId) -> None:
        self.leave(group)
        self.writers.forget(group)
        self._epochs.pop(group, None)

    def raise_fence(self, job: str, fence: Epoch) -> None:
        self._fences[job] = max(fence, self.fence(job))

    # ------------------------------------------------------------ catch-up

    def caught_up(self, group: GroupId, epoch: Epoch, now: float, *, incomplete: bool) -> list[ev.Effect]:
        """The catch-up of this epoch has ended. `incomplete`: a pushed version of the group still lacks files."""
        self._deadline_valid = False
        state = self._states.get(group)
        became_whole = state is not None and state.finished(epoch, now, incomplete=incomplete)
        return [ev.ReportGroup(group)] if became_whole else []

    def version_incomplete(self, group: GroupId, now: float) -> None:
        """A version was pushed here without all its files: they may have to be fetched."""
        if state := self._states.get(group):
            state.plan_repair(now)
            self._deadline_valid = False

    def file_arrived(self, group: GroupId, now: float) -> None:
        state = self._states.get(group)
        if state is not None and state.progress(now):
            self._deadline_valid = False

    def damaged(self, group: GroupId) -> list[ev.Effect]:
        """Files of the group that should be here are gone."""
        state = self._states.get(group)
        if state is None:
            return []
        self._deadline_valid = False
        return [*state.damaged(self._me), ev.ReportGroup(group)]

    def tick(self, now: float, incomplete: Callable[[GroupId], bool]) -> list[ev.Effect]:
        """Starts the due catch-ups. `incomplete`: as for `caught_up`."""
        self._deadline_valid = False
        effects: list[ev.Effect] = []
        for group, state in self._states.items():
            due = state.next_deadline()
            if due is not None and due <= now:
                effects += state.tick(self._me, now, incomplete=incomplete(group))
        return effects


def _members(group: ReplicaGroup) -> list[tuple[tuple[str, str], bool]]:
    """The incarnations in their order, each with whether it is whole."""
    return [(incarnation_of(member.worker), member.whole) for member in group.members]
