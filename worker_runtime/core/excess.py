"""Copies of groups that this worker has left (Rhino 4.2.3): who may delete them, and when.

Never on the manager's word: the worker itself asks the whole members of the group for their inventories, under the
epoch that it knows, and deletes only what `min_copies` of them have. An answer counts only when it was given under
exactly that epoch. So of two workers that each rely on the other's copy at most one deletes: whoever answers as a
member has seen the epoch that makes it one, and what it was about to delete under an older epoch stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rhino.ids import Epoch, FileEntry, GroupId, ReplicaGroup, StoreId, Version, Worker
from worker_runtime.core import events as ev
from worker_runtime.core.blocks import is_spread
from worker_runtime.core.closure import Catalogue, StoreCatalogue, delete_order
from worker_runtime.core.membership import life

AGAIN_S = 30.0  # before members are asked again about what has stayed
RETRY_S = 1.0  # the same when some could not be asked, or have not heard of the epoch yet


@dataclass(frozen=True, slots=True)
class Answer:
    """What a member stores of the group above its floors, and the highest epoch of it that it had seen."""

    member: Worker
    epoch: Epoch
    files: tuple[FileEntry, ...]


# ---------------------------------------------------------------- events, beside some of core/events.py


@dataclass(frozen=True, slots=True)
class GroupUsed:
    """A file of the group came: from an executor here, or for one."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class MembersAnswered:
    """The end of AskMembers(group, epoch); without those that could not be asked."""

    group: GroupId
    epoch: Epoch
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class ExcessRemoved:
    """RemoveExcess was carried out, as far as possible."""

    group: GroupId
    epoch: Epoch


Event = ev.GroupAdopted | ev.GroupLeft | ev.JobForgotten | GroupUsed | MembersAnswered | ExcessRemoved | ev.Tick

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class AskMembers:
    """Ask each of `members` for its inventory of the group; all together come back as one MembersAnswered."""

    group: GroupId
    epoch: Epoch
    members: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class RemoveExcess:
    """Take these names out of the index now, before anything else happens here; then delete. Then ExcessRemoved."""

    store: StoreId
    epoch: Epoch
    names: tuple[str, ...]


Effect = AskMembers | RemoveExcess


class Holdings(Protocol):
    """What of this worker's state counts at the moment of a deletion."""

    def epoch(self, group: GroupId) -> Epoch:
        """The highest epoch of the group that this worker has seen."""
        ...

    def floor(self, store: StoreId) -> Version | None: ...

    def pinned(self, store: StoreId) -> Iterable[Version]:
        """Versions that a session has open."""
        ...

    def busy(self, store: StoreId) -> Iterable[str]:
        """Names that some operation works on."""
        ...


@dataclass(slots=True)
class _Outside:
    """A group without this worker. `stores`: those that are still to be looked at with these answers."""

    group: ReplicaGroup
    due: float | None
    asking: Epoch | None = None
    answers: tuple[Answer, ...] = ()
    complete: bool = False
    stores: list[StoreId] | None = None


class ExcessMachine:
    """One worker's machine for all groups that it is no member of. `catalogue` and `holdings` are read only.

    What has been idle here for `grace_s` seconds is in excess: until then it makes moving back cheap.
    """

    def __init__(self, me: Worker, catalogue: Catalogue, holdings: Holdings, grace_s: float) -> None:
        self._me = me
        self._catalogue = catalogue
        self._holdings = holdings
        self._grace_s = grace_s
        self._outside: dict[GroupId, _Outside] = {}
        self._deadline: float | None = None  # not later than any group is due

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
                    self._set_due(state, now + self._grace_s)
            case MembersAnswered():
                return self._answered(event, now)
            case ExcessRemoved(group_id, epoch):
                return self._go_on(group_id, epoch, now)
            case ev.Tick():
                return self._tick(now)
        return []

    def outside(self, group: GroupId) -> bool:
        """Whether GroupUsed matters: this worker has left the group, as far as it was told."""
        return group in self._outside

    def next_deadline(self) -> float | None:
        return self._deadline

    def check_invariants(self) -> None:
        for state in self._outside.values():
            assert state.group.member(self._me.worker_id) is None, f"{state.group.group}: a member deletes nothing"
            assert state.due is None or (self._deadline is not None and self._deadline <= state.due), "never due"

    def _set_due(self, state: _Outside, due: float) -> None:
        state.due = due
        self._deadline = due if self._deadline is None else min(due, self._deadline)

    def _adopt(self, group: ReplicaGroup, now: float) -> None:
        known = self._outside.get(group.group)
        if is_spread(group):
            return  # a baseline, of which nothing is deleted
        if group.epoch < self._holdings.epoch(group.group) or (known and group.epoch <= known.group.epoch):
            return
        if group.member(self._me.worker_id) is not None:
            self._outside.pop(group.group, None)
        elif known is None:
            state = self._outside[group.group] = _Outside(group, None)
            self._set_due(state, now + self._grace_s)
        else:  # other members: they have to be asked anew
            known.group, known.asking, known.answers, known.stores = group, None, (), None
            self._set_due(known, max(now, known.due or now))

    def _tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for group_id, state in self._outside.items():
            if state.due is None or state.due > now:
                continue
            state.due = None
            whole = tuple(m.worker for m in state.group.members if m.whole)
            if not any(len(files) for files in self._catalogue.stores(group_id).values()):
                self._set_due(state, now + max(self._grace_s, AGAIN_S))  # a push that was under way may still come
                continue
            if len(whole) < state.group.settings.copies:
                self._set_due(state, now + AGAIN_S)
                continue
            state.asking = state.group.epoch
            effects.append(AskMembers(group_id, state.group.epoch, whole))
        self._deadline = min((s.due for s in self._outside.values() if s.due is not None), default=None)
        return effects

    def _answered(self, event: MembersAnswered, now: float) -> list[Effect]:
        state = self._outside.get(event.group)
        if state is None or state.asking != event.epoch:
            return []
        whole = {life(m.worker) for m in state.group.members if m.whole}
        counted = {life(a.member): a for a in event.answers if a.epoch == event.epoch and life(a.member) in whole}
        state.answers, state.complete = tuple(counted.values()), len(counted) == len(whole)
        state.stores = sorted(self._catalogue.stores(event.group), reverse=True)
        return self._go_on(event.group, event.epoch, now)

    def _go_on(self, group: GroupId, epoch: Epoch, now: float) -> list[Effect]:
        """Store by store: pins and epoch may change while files are being deleted."""
        state = self._outside.get(group)
        if state is None or state.asking != epoch:
            return []
        while state.stores and self._holdings.epoch(group) == epoch:
            store = state.stores.pop()
            if names := self._removable(store, state):
                return [RemoveExcess(store, epoch, names)]
        complete, state.asking, state.answers, state.stores = state.complete, None, (), None
        if state.due is None:
            self._set_due(state, now + (AGAIN_S if complete else RETRY_S))
        return []

    def _removable(self, store: StoreId, state: _Outside) -> tuple[str, ...]:
        if state.due is not None:
            return ()  # it has been used again meanwhile
        members = [StoreCatalogue(e for e in answer.files if e.store == store) for answer in state.answers]
        return removable(
            self._catalogue.store(store),
            members,
            state.group.settings.copies,
            floor=self._holdings.floor(store),
            pins=self._holdings.pinned(store),
            busy=self._holdings.busy(store),
            me=self._me.worker_id,
        )


def removable(
    here: StoreCatalogue,
    members: Sequence[StoreCatalogue],
    copies: int,
    *,
    floor: Version | None,
    pins: Iterable[Version],
    busy: Iterable[str],
    me: str,
) -> tuple[str, ...]:
    """Names here that `copies` of `members` have, or that lie below a floor whose version so many of them hold.

    A version goes only as a whole: when each of so many members has all the files that it may open from here. Nothing
    goes while the newest version anywhere was written by `me`: its executor builds on these files.
    """
    if len(members) < copies or _wrote_newest(me, (here, *members)):
        return ()
    passed = floor is not None and sum(member.holds(floor) for member in members) >= copies
    kept = {*busy, *here.reach(*pins)}
    needed: set[str] = set()  # by versions that may still be loaded
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
    """So many members have each of these files, with the same bytes."""
    names = tuple(names)
    return sum(all(_same(here.get(n), member.get(n)) for n in names) for member in members) >= copies


def _same(mine: FileEntry | None, theirs: FileEntry | None) -> bool:
    if mine is None or theirs is None:
        return False
    return (mine.size_bytes, mine.crc32c) == (theirs.size_bytes, theirs.crc32c)


def _wrote_newest(me: str, catalogues: Iterable[StoreCatalogue]) -> bool:
    files = [f for catalogue in catalogues for f in catalogue.files() if f.version is not None]
    newest = max((f.version.version for f in files if f.version), default=0)
    return any(f.version.version == newest and f.entry.written_by == me for f in files if f.version)
