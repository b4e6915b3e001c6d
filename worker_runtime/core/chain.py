"""Chain replication of one sidecar (Rhino 4.2.2, phase 2): one machine for all groups of the worker.

A written file goes to the first of the other members, which stores, acknowledges its own copy at once and forwards
from its disk. Acks name the member they are about and travel back hop by hop. A commit is complete when
`required_copies` whole members of the *current* epoch hold the version. Everything that some member has not yet
acknowledged stays in the outbox and is offered again on a new epoch and on a new link.

Where it departs from the paper: catch-up is pulled (ARCHITECTURE.md, "Catch-up and anti-entropy"), and each member's
own ack counts, rather than the tail's alone, so that a lagging tail delays nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rhino.errors import AlreadyThereError, LocalProtocolError, PreconditionError
from rhino.ids import (
    NO_EPOCH,
    Epoch,
    FileEntry,
    FileKind,
    GroupId,
    Member,
    ReplicaGroup,
    StoreId,
    Version,
    Worker,
    parse_name,
)
from worker_runtime.core import blocks
from worker_runtime.core import events as ev
from worker_runtime.core.closure import Catalogue
from worker_runtime.core.commits import Commit, Commits
from worker_runtime.core.lag import Lag, LagMeter
from worker_runtime.core.membership import GroupState, life
from worker_runtime.core.outbox import FileKey, Outbox, key_of
from worker_runtime.core.upstreams import Upstreams, refusal


class ChainMachine:
    """The machine of one worker. See core/events.py for what it takes and gives.

    `catalogue` is read only here: the caller changes it before it tells. As persisted: `epochs`, the highest epoch seen
    of each group, and `fences` of forgotten jobs. After a restart commits and outbox are empty, and no group is whole
    until it has caught up.
    """

    def __init__(
        self,
        me: Worker,
        catalogue: Catalogue,
        epochs: Mapping[GroupId, Epoch],
        fences: Mapping[str, Epoch] | None = None,
    ) -> None:
        self._me = me
        self._catalogue = catalogue
        self._epochs = dict(epochs)
        self._fences = dict(fences or {})  # of forgotten jobs
        self._groups: dict[GroupId, GroupState] = {}
        self._groups_moved = False  # the cached deadline below is out of date
        self._group_deadline: float | None = None
        self._outbox = Outbox()
        self._lags = LagMeter()
        self._transfers: dict[int, ev.BeginReceived] = {}
        self._upstreams = Upstreams()
        self._unheld: dict[StoreId, set[str]] = {}  # received versions whose closure is not here yet
        self._commits = Commits()
        self._groupless: dict[FileKey, FileEntry] = {}  # written before the group was known
        self._handlers: dict[type, Callable[[Any, float], list[ev.Effect]]] = {
            ev.GroupAdopted: self._adopt,
            ev.GroupLeft: self._leave,
            ev.FileStored: self._file_stored,
            ev.CommitRequested: self._commit_requested,
            ev.CommitAbandoned: self._commit_abandoned,
            ev.BeginReceived: self._begin,
            ev.TransferStored: self._transfer_stored,
            ev.TransferFailed: self._transfer_failed,
            ev.AckReceived: self._ack,
            ev.RefusalReceived: self._refused,
            ev.PeerConnected: self._connected,
            ev.PeerDisconnected: self._disconnected,
            ev.CatchUpFinished: self._caught_up,
            ev.FilesRemoved: self._removed,
            ev.JobForgotten: self._forget,
            ev.Tick: self._tick,
        }

    def handle(self, event: ev.Event, *, now: float) -> list[ev.Effect]:
        return self._handlers[type(event)](event, now)

    def next_deadline(self) -> float | None:
        if self._groups_moved:  # there are many groups, and their deadlines seldom change
            deadlines = (state.next_deadline() for state in self._groups.values())
            self._group_deadline = min((at for at in deadlines if at is not None), default=None)
            self._groups_moved = False
        times = (self._group_deadline, self._outbox.next_retry(), self._commits.next_deadline())
        return min((at for at in times if at is not None), default=None)

    def check_invariants(self) -> None:
        deadlines = [at for state in self._groups.values() if (at := state.next_deadline()) is not None]
        assert self._groups_moved or self._group_deadline == min(deadlines, default=None), "a deadline was missed"
        for group, state in self._groups.items():
            assert state.group.epoch <= self._epochs[group], "adopted more than was persisted"
            assert state.whole_epoch in (None, state.group.epoch), "whole for another epoch"
        for out in self._outbox.values():
            key = key_of(out.entry)
            assert not out.done() or key in self._commits, f"{key} is done but in the outbox"
            assert self._me.worker_id not in {w.worker_id for w in out.chain}, f"{key} is offered to its sender"
            assert self._catalogue.get(*key) is not None, f"{key} is offered but not here"

    def group(self, group: GroupId) -> ReplicaGroup | None:
        """The group as adopted last."""
        state = self._groups.get(group)
        return state.group if state else None

    def groups(self) -> Iterable[GroupId]:
        return self._groups.keys()

    def epoch(self, group: GroupId) -> Epoch:
        """The highest epoch seen, NO_EPOCH for an unknown group."""
        return max(self._epochs.get(group, NO_EPOCH), self._fences.get(group.job, NO_EPOCH))

    def forgotten(self, group: GroupId) -> bool:
        """Its job has ended for good, and nobody has made it anew since."""
        return group.job in self._fences and self._epochs.get(group, NO_EPOCH) < self._fences[group.job]

    def highest_epoch(self) -> Epoch:
        """Over all groups; what the worker reports at Register."""
        return max((*self._epochs.values(), *self._fences.values()), default=NO_EPOCH)

    def whole(self, group: GroupId) -> bool:
        """This worker has caught up after adopting the epoch that it has adopted last."""
        state = self._groups.get(group)
        return state is not None and state.whole_epoch == state.group.epoch

    def lags(self, now: float) -> tuple[Lag, ...]:
        """How far the next workers in the chains are behind. For each heartbeat: times run from one call to another."""
        return self._lags.measure(self._outbox.values(), now)

    def owed_bytes(self) -> int:
        """Bytes of files that other members have not stored yet, counted once for each of them."""
        return self._outbox.owed_bytes()

    def busy_names(self, store: StoreId, floor: Version | None) -> set[str]:
        """Names under way (commits and outbox): not to be collected.

        Not what is only owed to others and is below the floor: a member may never come to hold such a version.
        """
        owed = (key for key in self._outbox.keys(store.group) if not _below(key, floor))
        keys = (*owed, *self._commits, *self._groupless)
        return {key.name for key in keys if key.store == store}

    # ------------------------------------------------------------ groups

    def _adopt(self, event: ev.GroupAdopted, now: float) -> list[ev.Effect]:
        new, gid = event.group, event.group.group
        known = self._groups.get(gid)
        if new.epoch < self.epoch(gid):
            return []
        if known is not None and new.epoch == known.group.epoch:
            known.group = new  # at most addresses have changed: a sidecar has restarted on another port
            return self._outbox.readdress(gid, {m.worker.worker_id: m.worker for m in new.members})
        effects = self._see_epoch(gid, new.epoch)
        state = self._groups.setdefault(gid, GroupState(new))
        effects += state.adopt(new, self._me, now)
        self._groups_moved = True
        effects.append(ev.ReportGroup(gid))
        if blocks.is_spread(new):  # until now a block that came counted only with its whole closure
            for store in tuple(self._catalogue.stores(gid)):
                effects += self._recheck(store)
        for key in self._outbox.keys(gid):
            effects += self._offer_again(key, new)
        for key in [key for key in self._groupless if key.store.group == gid]:
            effects += self._push_written(self._groupless.pop(key))
        for key in self._commits.of_group(gid):
            if key not in self._outbox:
                effects += self._push_written(self._commits.entry(key))
            effects += self._try_complete(key)
        return effects

    def _leave(self, event: ev.GroupLeft, now: float) -> list[ev.Effect]:
        self._groups.pop(event.group, None)
        self._groups_moved = True
        return [ev.AskForGroup(event.group)] if self._commits.of_group(event.group) else []

    def _see_epoch(self, group: GroupId, epoch: Epoch) -> list[ev.Effect]:
        if epoch <= self.epoch(group):
            return []
        self._epochs[group] = epoch
        return [ev.PersistEpoch(group, epoch)]

    def _others(self, entry: FileEntry, group: ReplicaGroup) -> tuple[Worker, ...]:
        return tuple(w for w in blocks.keepers(entry, group) if w.worker_id != self._me.worker_id)

    # ------------------------------------------------------------ sending

    def _push_written(self, entry: FileEntry) -> list[ev.Effect]:
        group = self.group(entry.store.group)
        if self._catalogue.get(*key_of(entry)) is None:
            return []  # damaged meanwhile; pushed when it is back
        if group is None:
            self._groupless[key_of(entry)] = entry
            return [ev.AskForGroup(entry.store.group)]
        return self._outbox.offer(entry, group.epoch, self._others(entry, group))

    def _offer_again(self, key: FileKey, group: ReplicaGroup) -> list[ev.Effect]:
        """Under a new epoch: a file with a waiting commit needs everybody's ack anew, others only the missing ones.

        Also files of others that were being forwarded: their writer may be gone.
        """
        out = self._outbox.get(key)
        assert out is not None
        chain = self._others(out.entry, group)
        if key not in self._commits:
            sources = self._upstreams.of(key)
            chain = tuple(w for w in chain if life(w) not in out.held and w.worker_id not in sources)
        return self._outbox.offer(out.entry, group.epoch, chain)

    def _connected(self, event: ev.PeerConnected, now: float) -> list[ev.Effect]:
        return self._outbox.connected(event.worker_id, event.lane)

    def _disconnected(self, event: ev.PeerDisconnected, now: float) -> list[ev.Effect]:
        self._outbox.disconnected(event.worker_id, event.lane)
        return []

    def _ack(self, event: ev.AckReceived, now: float) -> list[ev.Effect]:
        key = FileKey(event.store, event.name)
        if event.member.worker_id == self._me.worker_id:
            return []  # it has come round: each tells of its own copy itself
        effects = self._upstreams.tell(key, event.member, holds=event.holds, epoch=event.epoch)
        out = self._outbox.get(key)
        if out is not None and out.epoch == event.epoch:
            out.stored.add(life(event.member))
        if out is not None and out.epoch == event.epoch and event.holds:
            out.held.add(life(event.member))
            effects += self._try_complete(key)
            self._settle(key)
            if blocks.is_spread(self.group(key.store.group)):
                for waiting in self._commits.of_store(key.store):  # a snapshot's zip waits for its blocks
                    effects += self._try_complete(waiting)
        return effects

    def _refused(self, event: ev.RefusalReceived, now: float) -> list[ev.Effect]:
        key = FileKey(event.store, event.name)
        out = self._outbox.get(key)
        if out is None:
            return []
        if event.reason is ev.Refusal.STALE_EPOCH:
            return [ev.AskForGroup(key.store.group)] if event.current_epoch > out.epoch else []
        if event.reason is ev.Refusal.NAME_CONFLICT:
            return self._conflict(key, event)
        self._outbox.retry_later(key, now)
        return []

    def _conflict(self, key: FileKey, event: ev.RefusalReceived) -> list[ev.Effect]:
        """Never to be sent again; whoever waits for the file is told."""
        error = AlreadyThereError(
            f"{key.store}/{key.name}: {event.member.worker_id} has this name with another checksum ({event.message})"
        )
        effects = self._outbox.drop(key)
        current = self.epoch(key.store.group)
        effects += [ev.CompleteCommit(commit.request, 0, current, error) for commit in self._commits.pop(key)]
        for upstream in sorted(self._upstreams.of(key)):
            effects.append(refusal(upstream, key, event.reason, current, event.message, event.member))
        self._upstreams.forget(key)
        return effects

    # ------------------------------------------------------------ receiving

    def _begin(self, event: ev.BeginReceived, now: float) -> list[ev.Effect]:
        key, gid = key_of(event.entry), event.entry.store.group
        if event.epoch < self.epoch(gid):
            return [ev.DiscardTransfer(event.transfer), self._stale(event)]
        effects = self._see_epoch(gid, event.epoch)
        if effects:
            effects.append(ev.AskForGroup(gid))
        here = self._catalogue.get(*key)
        if here is None:
            self._transfers[event.transfer] = event
            return [*effects, ev.ReceiveFile(event.transfer, event.entry)]
        effects.append(ev.DiscardTransfer(event.transfer))
        if (here.crc32c, here.size_bytes) != (event.entry.crc32c, event.entry.size_bytes):
            return [*effects, self._refusal(event, ev.Refusal.NAME_CONFLICT, f"crc32c {here.crc32c:08x} is here")]
        return effects + self._take(event, now)

    def _transfer_stored(self, event: ev.TransferStored, now: float) -> list[ev.Effect]:
        begin = self._transfers.pop(event.transfer, None)
        if begin is None:
            raise LocalProtocolError(f"transfer {event.transfer} was not accepted")
        effects = self._arrived(begin.entry, now)
        # The epoch has moved while bytes came in: the file stays, but the sender must learn the new membership.
        if begin.epoch < self.epoch(begin.entry.store.group):
            return [*effects, self._stale(begin)]
        return effects + self._take(begin, now)

    def _transfer_failed(self, event: ev.TransferFailed, now: float) -> list[ev.Effect]:
        begin = self._transfers.pop(event.transfer, None)
        if begin is None or event.reason is None:
            return []
        return [self._refusal(begin, event.reason, event.message)]

    def _take(self, begin: ev.BeginReceived, now: float) -> list[ev.Effect]:
        """The file of an accepted Begin is here: acknowledge the own copy at once, then forward."""
        key = key_of(begin.entry)
        holds = self._holds(begin.entry)
        self._upstreams.note(begin)
        effects = self._upstreams.tell(key, self._me, holds=holds, epoch=begin.epoch)
        if not holds:
            self._unheld.setdefault(key.store, set()).add(key.name)
            if state := self._groups.get(key.store.group):
                state.plan_repair(self._me, now)
                self._groups_moved = True
        chain = tuple(w for w in begin.chain if w.worker_id != self._me.worker_id)
        out = self._outbox.get(key)
        if out is not None and out.epoch == begin.epoch:
            for worker in (w for w in chain if life(w) in out.held):
                effects += self._upstreams.tell(key, worker, holds=True, epoch=begin.epoch)
            effects += self._outbox.extend(out, chain, begin.upstream)
        elif chain:
            effects += self._outbox.offer(begin.entry, begin.epoch, chain)
        self._forget_upstreams(key)
        return effects

    def _settle(self, key: FileKey) -> None:
        """Forgets a file that everybody holds; while a commit waits for it, who holds it is still needed."""
        if key not in self._commits:
            self._outbox.settle(key)
            self._forget_upstreams(key)

    def _forget_upstreams(self, key: FileKey) -> None:
        if key not in self._outbox and key.name not in self._unheld.get(key.store, ()):
            self._upstreams.forget(key)

    # ------------------------------------------------------------ files and commits

    def _file_stored(self, event: ev.FileStored, now: float) -> list[ev.Effect]:
        effects = self._arrived(event.entry, now)
        if self.forgotten(event.entry.store.group):
            return effects
        awaited = key_of(event.entry) in self._commits and key_of(event.entry) not in self._outbox
        return effects + self._push_written(event.entry) if event.written or awaited else effects

    def _arrived(self, entry: FileEntry, now: float) -> list[ev.Effect]:
        """A file came from anywhere: what of its store is complete now is shown and acknowledged again.

        A zip is shown only when every file that it names is here; a file with a waiting commit when that completes.
        """
        if self.forgotten(entry.store.group):
            return self._drop_job(entry.store.job)
        state = self._groups.get(entry.store.group)
        if state is not None and state.progress(now):
            self._groups_moved = True
        effects: list[ev.Effect] = []
        if entry.kind is not FileKind.SNAPSHOT:
            effects.append(ev.MakeVisible(entry.store, entry.name))
        for name in self._catalogue.store(entry.store).whole_snapshots_with(entry.name):
            if FileKey(entry.store, name) not in self._commits:
                effects.append(ev.MakeVisible(entry.store, name))
        return effects + self._recheck(entry.store)

    def _recheck(self, store: StoreId) -> list[ev.Effect]:
        """Versions of the store that were incomplete: acknowledges again those that are held now."""
        effects: list[ev.Effect] = []
        for name in sorted(self._unheld.get(store, ())):
            entry = self._catalogue.get(store, name)
            if entry is not None and not self._holds(entry):
                continue
            self._unheld[store].discard(name)
            key = FileKey(store, name)
            effects += self._upstreams.tell(key, self._me, holds=True, epoch=self.epoch(store.group))
            self._forget_upstreams(key)
        for key in self._commits.of_store(store):
            effects += self._try_complete(key)
        return effects

    def _commit_requested(self, event: ev.CommitRequested, now: float) -> list[ev.Effect]:
        if self.forgotten(event.entry.store.group):
            return [*self._drop_job(event.entry.store.job), self._refuse_commit(event.request, event.entry.store)]
        key = self._commits.add(Commit(event.request, event.entry, event.deadline))
        effects = self._recheck(key.store)
        # Pushed also when complete by itself: the others need their copies all the same.
        return effects + self._push_written(event.entry)

    def _commit_abandoned(self, event: ev.CommitAbandoned, now: float) -> list[ev.Effect]:
        for key in self._commits.abandon(event.request):
            self._settle(key)
        return []

    def _try_complete(self, key: FileKey) -> list[ev.Effect]:
        """Completes the commits of a file once enough whole members of the current epoch hold its version.

        Not while a newer epoch has been seen than the one adopted: its members may have to be counted.
        """
        group = self.group(key.store.group)
        if key not in self._commits or group is None or group.epoch < self.epoch(group.group):
            return []
        out = self._outbox.get(key)
        held = set(out.held) if out is not None and out.epoch == group.epoch else set()
        if self._holds(self._commits.entry(key)):
            held.add(life(self._me))
        holders = [m for m in group.members if life(m.worker) in held]
        copies = self._copies(self._commits.entry(key), group, holders)
        if copies is None:
            return []
        entry, done = self._commits.entry(key), self._commits.pop(key)
        self._settle(key)
        effects = [ev.CompleteCommit(commit.request, copies, group.epoch) for commit in done]
        # Others may hold a snapshot of which a file has been lost here: it is shown once that is back.
        whole = self._catalogue.store(key.store).whole_snapshots_with(key.name)
        shown = entry.kind is not FileKind.SNAPSHOT or key.name in whole
        return [ev.MakeVisible(key.store, key.name), *effects] if shown else [*effects]

    def _copies(self, entry: FileEntry, group: ReplicaGroup, holders: list[Member]) -> int | None:
        """Copies of the version, given the members that have acknowledged it; None while these are too few."""
        if blocks.is_spread(group):
            store, version = entry.store, entry.version
            closures = self._catalogue.store(store).closures(version) if version else ()
            return blocks.copies(
                entry, group, self._me, len(holders), closures, lambda name: self._outbox.get(FileKey(store, name))
            )
        return len(holders) if sum(m.whole for m in holders) >= group.required_copies else None

    def _holds(self, entry: FileEntry) -> bool:
        """The whole closure; of a spread block, which nobody but its writer has with its closure, the block."""
        if blocks.is_spread(self.group(entry.store.group)):
            return entry.name in self._catalogue.store(entry.store)
        version = entry.version
        return version is None or self._catalogue.store(entry.store).holds(version)

    def _removed(self, event: ev.FilesRemoved, now: float) -> list[ev.Effect]:
        effects: list[ev.Effect] = []
        for name in event.names:
            key = FileKey(event.store, name)
            effects += self._outbox.drop(key)
            if event.damaged:  # who waits for the members behind this one has to offer it again
                current, text = self.epoch(key.store.group), "damaged after it had come"
                for upstream in sorted(self._upstreams.of(key)):
                    effects.append(refusal(upstream, key, ev.Refusal.CHECKSUM, current, text, self._me))
            self._upstreams.forget(key)
            self._groupless.pop(key, None)
            self._unheld.get(event.store, set()).discard(name)
        state = self._groups.get(event.store.group)
        if event.damaged and state is not None:
            self._groups_moved = True
            effects += [*state.damaged(self._me, now), ev.ReportGroup(event.store.group)]
        return effects

    def _caught_up(self, event: ev.CatchUpFinished, now: float) -> list[ev.Effect]:
        state = self._groups.get(event.group)
        self._groups_moved = True
        if state is None or not state.finished(event.epoch, now, incomplete=self._incomplete(event.group)):
            return []
        return [ev.ReportGroup(event.group)]

    def _incomplete(self, group: GroupId) -> bool:
        return any(names for store, names in self._unheld.items() if store.group == group)

    def _tick(self, event: ev.Tick, now: float) -> list[ev.Effect]:
        late, left = self._commits.due(now)
        effects: list[ev.Effect] = []
        for commit in late:
            group, out = self.group(commit.entry.store.group), self._outbox.get(key_of(commit.entry))
            effects.append(commit.timed_out(group, out.held if out else ()))
        for key in left:
            self._settle(key)
        effects += self._outbox.retry(now)
        self._groups_moved = True
        for gid, state in self._groups.items():
            effects += state.tick(self._me, now, incomplete=self._incomplete(gid))
        return effects

    # ------------------------------------------------------------ forgotten jobs

    def _forget(self, event: ev.JobForgotten, now: float) -> list[ev.Effect]:
        """The fence refuses whoever still sends; what is under way of the job ends. Again: only strays are deleted."""
        known = self._fences.get(event.job, NO_EPOCH)
        self._fences[event.job] = max(event.fence, known)
        drop, *refused = self._drop_job(event.job)
        again = event.fence <= known and isinstance(drop, ev.DropJob) and not drop.groups
        return [] if again else [drop, *refused]

    def _drop_job(self, job: str) -> list[ev.Effect]:
        known = {*self._groups, *self._epochs, *self._catalogue.groups(), *(key.store.group for key in self._groupless)}
        gone = tuple(sorted(group for group in known if group.job == job and self.forgotten(group)))
        refused: list[ev.Effect] = []
        for group in gone:
            self._groups.pop(group, None)
            self._epochs.pop(group, None)
            for commit_key in self._commits.of_group(group):
                refused += [self._refuse_commit(c.request, commit_key.store) for c in self._commits.pop(commit_key)]
            for key in self._outbox.keys(group):
                refused += self._outbox.drop(key)
            self._upstreams.forget_group(group)
            self._unheld = {store: names for store, names in self._unheld.items() if store.group != group}
            self._groupless = {k: entry for k, entry in self._groupless.items() if k.store.group != group}
        self._groups_moved = True
        return [ev.DropJob(job, self._fences[job], gone), *refused]

    def _refuse_commit(self, request: int, store: StoreId) -> ev.CompleteCommit:
        error = PreconditionError(f"{store}: the job was forgotten; start the query with a new checkpoint")
        return ev.CompleteCommit(request, 0, self._fences[store.job], error)

    def _stale(self, begin: ev.BeginReceived) -> ev.SendRefusal:
        return self._refusal(begin, ev.Refusal.STALE_EPOCH, f"epoch {begin.epoch} is old")

    def _refusal(self, begin: ev.BeginReceived, reason: ev.Refusal, message: str) -> ev.SendRefusal:
        key = key_of(begin.entry)
        return refusal(begin.upstream, key, reason, self.epoch(key.store.group), message, self._me)


def _below(key: FileKey, floor: Version | None) -> bool:
    version = parse_name(key.name).version
    return floor is not None and version is not None and version.version < floor.version
