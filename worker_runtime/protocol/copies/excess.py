"""Decides when this worker may delete copies of groups it has left (Rhino 4.2.3).

The manager's message alone never suffices. The worker itself asks the whole members of the group for their inventories,
under the epoch that it knows. It deletes only files that `min_copies` of them have. An answer counts only under exactly
this epoch. So of two workers that each rely on the other's copy, at most one deletes. The reason: a worker that answers
as a member has seen the epoch of its membership. It no longer deletes under an older epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rhino_core.ids import Epoch, FileEntry, GroupId, ReplicaGroup, StoreId, Version, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies.pulling import Inventory
from worker_runtime.protocol.keys import incarnation_of, same_bytes
from worker_runtime.protocol.versions.closure import Catalogue, StoreCatalogue, delete_order


def removable(
    here: StoreCatalogue,
    members: Sequence[StoreCatalogue],
    copies: int,
    *,
    floor: Version | None,
    pins: Iterable[Version],
    in_use: Iterable[str],
    me: str,
) -> tuple[str, ...]:
    """Names here that `copies` of `members` have, or that lie below a floor held by as many of them.

    A version goes only as a whole: as many members must each have every file of its closures here. Nothing goes while
    `me` wrote the newest version anywhere, because its executor builds on these files.
    """
    if len(members) < copies or _wrote_newest(me, (here, *members)):
        return ()
    passed = floor is not None and sum(member.holds(floor) for member in members) >= copies
    kept = {*in_use, *here.reach(*pins)}
    needed: set[str] = set()  # files of versions that may still be loaded
    for version in here.versions():
        if passed and floor is not None and version.version < floor.version:
            continue
        names = here.reach(version)
        needed |= names
        if not _confirmed(here, members, copies, names):
            kept |= names
    for file in here.files():
        if file.entry.name not in needed and not passed and not _confirmed(here, members, copies, (file.entry.name,)):
            kept.add(file.entry.name)
    return delete_order(file for file in here.files() if file.entry.name not in kept)


def _confirmed(here: StoreCatalogue, members: Sequence[StoreCatalogue], copies: int, names: Iterable[str]) -> bool:
    """Whether `copies` members each have all of these files, with the same bytes."""
    names = tuple(names)
    return sum(all(_same(here.get(n), member.get(n)) for n in names) for member in members) >= copies


def _same(mine: FileEntry | None, theirs: FileEntry | None) -> bool:
    return mine is not None and theirs is not None and same_bytes(mine, theirs)


def _wrote_newest(me: str, catalogues: Iterable[StoreCatalogue]) -> bool:
    files = [f for catalogue in catalogues for f in catalogue.files() if f.version is not None]
    newest = max((f.version.version for f in files if f.version), default=0)
    return any(f.version.version == newest and f.entry.written_by == me for f in files if f.version)


AGAIN_S = 30.0  # delay before members are asked again about remaining files
RETRY_S = 1.0  # the same delay if some members could not be asked or have not seen the epoch yet


# ---------------------------------------------------------------- events, in addition to some of protocol/events.py


@dataclass(frozen=True, slots=True)
class GroupUsed:
    """A file of the group arrived, from or for an executor on this worker."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class MembersAnswered:
    """The end of AskMembers(group, epoch). Unreachable members are missing."""

    group: GroupId
    epoch: Epoch
    answers: tuple[Inventory, ...]


@dataclass(frozen=True, slots=True)
class ExcessRemoved:
    """RemoveExcess was carried out, as far as possible."""

    group: GroupId
    epoch: Epoch


Event = ev.GroupAdopted | ev.GroupLeft | ev.JobForgotten | GroupUsed | MembersAnswered | ExcessRemoved | ev.Tick

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class AskMembers:
    """Ask each of `members` for its inventory of the group. All answers come back together as one MembersAnswered."""

    group: GroupId
    epoch: Epoch
    members: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class RemoveExcess:
    """Remove these names from the index now, before any other event is handled.

    Then delete the files and post ExcessRemoved.
    """

    store: StoreId
    epoch: Epoch
    names: tuple[str, ...]


Effect = AskMembers | RemoveExcess


class Holdings(Protocol):
    """The parts of this worker's state needed at the moment of a deletion."""

    def epoch(self, group: GroupId) -> Epoch:
        """The highest epoch of the group seen by this worker."""
        ...

    def floor(self, store: StoreId) -> Version | None: ...

    def pinned(self, store: StoreId) -> Iterable[Version]:
        """Versions open in a session."""
        ...

    def in_use(self, store: StoreId) -> Iterable[str]:
        """Names in use by an operation."""
        ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The members are asked at monotonic time `due` (seconds)."""

    due: float


@dataclass(frozen=True, slots=True)
class _Asking:
    """The members have been asked under `epoch`."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class _Deleting:
    """Files are deleted store by store. `complete`: all whole members have answered. `stores`: not yet looked at."""

    epoch: Epoch
    answers: tuple[Inventory, ...]
    complete: bool
    stores: list[StoreId]


@dataclass(slots=True)
class _Outside:
    """A group without this worker as a member."""

    group: ReplicaGroup
    phase: _Waiting | _Asking | _Deleting

    @property
    def due(self) -> float | None:
        return self.phase.due if isinstance(self.phase, _Waiting) else None


class ExcessMachine:
    """One worker's machine for all groups of which it is no member. `catalogue` and `holdings` are read-only here.

    A copy is excess once it has been idle here for `grace_s` seconds. Until then it makes moving back cheap.
    """

    def __init__(self, me: Worker, catalogue: Catalogue, holdings: Holdings, grace_s: float) -> None:
        self._me = me
        self._catalogue = catalogue
        self._holdings = holdings
        self._grace_s = grace_s
        self._outside: dict[GroupId, _Outside] = {}
        self._deadline: float | None = None  # no group is due earlier

    def handle(self, event: Event, *, now: float) -> list[Effect]:
        match event:
            case ev.GroupAdopted(group):
                self._adopt(group, now)
            case ev.GroupLeft(group_id):
                self._outside.pop(group_id, None)
            case ev.JobForgotten(job):
                self._outside = {gid: state for gid, state in self._outside.items() if gid.job != job}
            case GroupUsed(group_id):
                if state := self._outside.get(group_id):
                    self._wait(state, now + self._grace_s)
            case MembersAnswered():
                return self._answered(event, now)
            case ExcessRemoved(group_id, epoch):
                return self._go_on(group_id, epoch, now)
            case ev.Tick():
                return self._tick(now)
        return []

    def outside(self, group: GroupId) -> bool:
        """Whether GroupUsed matters for the group: as far as this worker knows, it has left the group."""
        return group in self._outside

    def next_deadline(self) -> float | None:
        return self._deadline

    def check_invariants(self) -> None:
        for state in self._outside.values():
            assert state.group.member(self._me.worker_id) is None, f"{state.group.group}: a member deletes nothing"
            assert state.due is None or (self._deadline is not None and self._deadline <= state.due), "never due"

    def _wait(self, state: _Outside, due: float) -> None:
        """Asks the members at `due`. Whatever is under way for the group ends: its answers may be outdated."""
        state.phase = _Waiting(due)
        self._deadline = due if self._deadline is None else min(due, self._deadline)

    def _adopt(self, group: ReplicaGroup, now: float) -> None:
        known = self._outside.get(group.group)
        if group.epoch < self._holdings.epoch(group.group) or (known and group.epoch <= known.group.epoch):
            return
        if group.member(self._me.worker_id) is not None:
            self._outside.pop(group.group, None)
        elif known is None:
            due = now + self._grace_s
            self._outside[group.group] = _Outside(group, _Waiting(due))
            self._deadline = due if self._deadline is None else min(due, self._deadline)
        else:  # the members may have changed: ask them again
            known.group = group
            self._wait(known, now if known.due is None else max(now, known.due))

    def _tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for group_id, state in self._outside.items():
            if state.due is None or state.due > now:
                continue
            whole = tuple(m.worker for m in state.group.members if m.whole)
            if not any(len(files) for files in self._catalogue.stores(group_id).values()):
                self._wait(state, now + max(self._grace_s, AGAIN_S))  # a push that was under way may still arrive
                continue
            if len(whole) < state.group.settings.copies:
                self._wait(state, now + AGAIN_S)
                continue
            state.phase = _Asking(state.group.epoch)
            effects.append(AskMembers(group_id, state.group.epoch, whole))
        self._deadline = min((s.due for s in self._outside.values() if s.due is not None), default=None)
        return effects

    def _answered(self, event: MembersAnswered, now: float) -> list[Effect]:
        state = self._outside.get(event.group)
        if state is None or state.phase != _Asking(event.epoch):
            return []
        whole = {incarnation_of(m.worker) for m in state.group.members if m.whole}
        current = {incarnation_of(answer.worker): answer for answer in event.answers if answer.epoch == event.epoch}
        counted = tuple(answer for member, answer in current.items() if member in whole)
        stores = sorted(self._catalogue.stores(event.group), reverse=True)
        state.phase = _Deleting(event.epoch, counted, len(counted) == len(whole), stores)
        return self._go_on(event.group, event.epoch, now)

    def _go_on(self, group: GroupId, epoch: Epoch, now: float) -> list[Effect]:
        """Continue store by store: pins and epoch may change while files are being deleted."""
        state = self._outside.get(group)
        if state is None or not isinstance(state.phase, _Deleting) or state.phase.epoch != epoch:
            return []
        while state.phase.stores and self._holdings.epoch(group) == epoch:
            store = state.phase.stores.pop()
            if names := self._removable(store, state.group, state.phase.answers):
                return [RemoveExcess(store, epoch, names)]
        self._wait(state, now + (AGAIN_S if state.phase.complete else RETRY_S))
        return []

    def _removable(self, store: StoreId, group: ReplicaGroup, answers: Iterable[Inventory]) -> tuple[str, ...]:
        members = [StoreCatalogue(e for e in answer.files if e.store == store) for answer in answers]
        return removable(
            self._catalogue.store(store),
            members,
            group.settings.copies,
            floor=self._holdings.floor(store),
            pins=self._holdings.pinned(store),
            in_use=self._holdings.in_use(store),
            me=self._me.worker_id,
        )
