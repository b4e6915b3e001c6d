"""Chain replication of one sidecar (Rhino 4.2.2, phase 2): one machine for all groups of the worker.

A written file goes to the first of the other members, which stores, acknowledges its own copy at once and forwards
from its disk. Acks name the member they are about and travel back hop by hop. A commit is complete when
`required_copies` whole members of the *current* epoch hold the version. Everything that some member has not yet
acknowledged stays in the outbox and is offered again on a new epoch and on a new link.

Where it departs from the paper: catch-up is pulled (ARCHITECTURE.md, "Catch-up and anti-entropy"), and each member's
own ack counts, rather than the tail's alone, so that a lagging tail delays nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rhino.errors import AlreadyThereError
from rhino.ids import Epoch, FileEntry, GroupId, ReplicaGroup, Worker
from worker_runtime.core import blocks
from worker_runtime.core import events as ev
from worker_runtime.core.closure import Catalogue
from worker_runtime.core.commits import Commit
from worker_runtime.core.membership import GroupState, life
from worker_runtime.core.outbox import FileKey, key_of
from worker_runtime.core.receiving import Receiving
from worker_runtime.core.upstreams import refusal


class ChainMachine(Receiving):
    """The machine of one worker. See core/events.py for what it takes and gives.

    `catalogue` is read only here: the caller changes it before it tells. As persisted: `epochs`, the highest epoch seen
    of each group, and `fences` of forgotten jobs. After a restart commits and outbox are empty, and no group is whole
    until it has caught up.

    Built up in layers, one idea each: what it knows (chain_state), forgotten jobs, what becomes complete, what comes
    down a chain, and here groups, sending and time.
    """

    def __init__(
        self,
        me: Worker,
        catalogue: Catalogue,
        epochs: Mapping[GroupId, Epoch],
        fences: Mapping[str, Epoch] | None = None,
    ) -> None:
        super().__init__(me, catalogue, epochs, fences)
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
        for key in self._outbox.of_group(gid):
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

    def _push_closure(self, entry: FileEntry) -> list[ev.Effect]:
        """Who has had the file for so long and cannot open its version lacks files that it does not get by catching up,
        if this worker is no member: collected, perhaps, before a late snapshot that names them came from here."""
        group, out = self.group(entry.store.group), self._outbox.get(key_of(entry))
        if group is None or group.member(self._me.worker_id) is not None or out is None or entry.version is None:
            return []
        lacking = tuple(worker for worker in out.chain if life(worker) in out.stored - out.held)
        store = self._catalogue.store(entry.store)
        files = [file for name in store.closure(entry.version) or () if (file := store.get(name)) is not None]
        idle = sorted(
            (file for file in files if key_of(file) not in self._outbox), key=lambda f: (f.lane.value, f.name)
        )
        return [effect for file in idle for effect in self._outbox.offer(file, out.epoch, lacking)]

    def _files_on_their_way(self, zip_: FileEntry) -> bool:
        return any(FileKey(zip_.store, name) in self._outbox for name in zip_.references)

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
            effects += self._outbox.go_round(out, self._upstreams.of(key)) if out.crossed else []
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

    # ------------------------------------------------------------ files and commits

    def _file_stored(self, event: ev.FileStored, now: float) -> list[ev.Effect]:
        effects = self._arrived(event.entry, now)
        if self.forgotten(event.entry.store.group):
            return effects
        awaited = key_of(event.entry) in self._commits and key_of(event.entry) not in self._outbox
        return effects + self._push_written(event.entry) if event.written or awaited else effects

    def _commit_requested(self, event: ev.CommitRequested, now: float) -> list[ev.Effect]:
        if self.forgotten(event.entry.store.group):
            return [*self._drop_job(event.entry.store.job), self._refuse_commit(event.request, event.entry.store)]
        key = self._commits.add(Commit(event.request, event.entry, event.deadline), now)
        effects = self._recheck(key.store)
        # Pushed also when complete by itself: the others need their copies all the same.
        return effects + self._push_written(event.entry)

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
        effects: list[ev.Effect] = []
        for commit in self._commits.impatient(now):
            if self._files_on_their_way(commit.entry):
                self._commits.wait_again(commit, now)
            else:
                effects += self._push_closure(commit.entry)
        late, left = self._commits.due(now)
        for commit in late:
            group, out = self.group(commit.entry.store.group), self._outbox.get(key_of(commit.entry))
            effects.append(commit.timed_out(group, out.held if out else ()))
            if not self._files_on_their_way(commit.entry):
                effects += self._push_closure(commit.entry)
        for key in left:
            self._settle(key)
        effects += self._outbox.retry(now)
        self._groups_moved = True
        for gid, state in self._groups.items():
            effects += state.tick(self._me, now, incomplete=self._incomplete(gid))
        return effects
