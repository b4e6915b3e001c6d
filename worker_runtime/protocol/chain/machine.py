"""Chain replication of one sidecar (Rhino 4.2.2, phase 2): one machine for all groups of the worker.

The writer sends a new file to the first of the other members. Each member stores the file, acknowledges its own copy at
once and forwards the file from its disk. Acks name the member they are about and travel back hop by hop. A commit is
complete when `required_copies` whole members of the *current* epoch hold the version. A file stays in the outbox until
every member has acknowledged it. It is offered again under a new epoch and on a new link.

Two departures from the paper. Catch-up is pulled (ARCHITECTURE.md, "Catch-up and anti-entropy"). Each member's own ack
counts, not only the tail's, so a lagging tail delays nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_never

from rhino_core.ids import Epoch, FileEntry, GroupId, ReplicaGroup, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.commits import Commit, Commits
from worker_runtime.protocol.chain.completing import Completing
from worker_runtime.protocol.chain.forgetting import Forgetting
from worker_runtime.protocol.chain.groups import Groups
from worker_runtime.protocol.chain.outbox import Outbox
from worker_runtime.protocol.chain.receiving import Receiving
from worker_runtime.protocol.chain.sending import Sending
from worker_runtime.protocol.chain.slow_commits import SlowCommits
from worker_runtime.protocol.chain.view import ChainView
from worker_runtime.protocol.keys import FileKey, key_of
from worker_runtime.protocol.versions.closure import Catalogue


class ChainMachine:
    """The machine of one worker. protocol/events.py lists its events and effects.

    `catalogue` is read-only here: the caller changes it before it posts the event. `epochs` (the highest epoch seen of
    each group), `fences` (of forgotten jobs) and `members` (under these epochs) come from the index. After a restart,
    commits and outbox are empty, and no group is whole until it has caught up.

    The machine itself only passes events to its parts, in the right order. Records: `Groups`, `Outbox`, `Commits`.
    Behaviour, each part built on those before it: `Receiving` (as the downstream of others), `Sending` (as their
    upstream), `Completing` (counts copies), `SlowCommits`, `Forgetting`.
    """

    def __init__(
        self,
        me: Worker,
        catalogue: Catalogue,
        epochs: Mapping[GroupId, Epoch],
        fences: Mapping[str, Epoch] | None = None,
        members: Mapping[GroupId, Collection[str]] | None = None,
    ) -> None:
        self._me = me
        self._groups = groups = Groups(me, epochs, fences or {}, members or {})
        self._outbox = outbox = Outbox()
        self._commits = commits = Commits()
        self._receiving = receiving = Receiving(me, catalogue, groups, outbox)
        self._sending = sending = Sending(me, catalogue, groups, outbox, commits, receiving)
        self._completing = Completing(me, catalogue, groups, outbox, commits, receiving)
        self._slow_commits = SlowCommits(me, groups, outbox, commits, sending)
        self._forgetting = Forgetting(catalogue, groups, commits, receiving, sending)
        self.view = ChainView(groups, outbox, sending)

    def handle(self, event: ev.Event, *, now: float) -> list[ev.Effect]:
        match event:  # the events of a commit come first
            case ev.AckReceived():
                return self._completing.acknowledged(event, now)
            case ev.BeginReceived(entry=entry):
                return self._forwarded(entry.store.group, self._receiving.begin(event, now))
            case ev.TransferStored(transfer):
                begin = self._receiving.arrived(transfer)
                if self._groups.outlived(begin.entry.store.group, begin.epoch):
                    return [ev.DropFile(begin.entry.store, begin.entry.name), *self._receiving.stored(begin, now)]
                return self._arrived(begin.entry, now) + self._receiving.stored(begin, now)
            case ev.CommitRequested():
                return self._commit_requested(event, now)
            case ev.FileStored(entry, written):
                return self._file_stored(entry, now, written=written)
            case ev.Tick():
                return self._tick(now)
            case ev.BytesSent():
                for store in self._outbox.link_moved(event):
                    self._commits.moved(store, now)
            case ev.BytesFetched(group_id):
                for key in self._commits.of_group(group_id):
                    self._commits.moved(key.store, now)
            case ev.CommitAbandoned(request):
                return self._slow_commits.abandon(request)
            case ev.TransferFailed():
                return self._receiving.failed(event)
            case ev.RefusalReceived():
                return self._completing.refused(event, now)
            case ev.WriterNamed():
                return self._forwarded(event.group, self._receiving.writer_named(event, now))
            case ev.PeerConnected(worker_id, lane):
                return self._outbox.connected(worker_id, lane)
            case ev.PeerDisconnected(worker_id, lane):
                self._outbox.disconnected(worker_id, lane)
            case ev.GroupAdopted(group):
                return self._adopt(group, now)
            case ev.GroupLeft(group_id):
                return self._leave(group_id)
            case ev.CatchUpFinished(group_id, epoch):
                incomplete = self._receiving.incomplete(group_id)
                return self._groups.caught_up(group_id, epoch, now, incomplete=incomplete)
            case ev.FilesRemoved():
                return self._removed(event)
            case ev.JobForgotten(job, fence):
                return self._forgetting.forget(job, fence)
            case _:
                assert_never(event)
        return []

    def next_deadline(self) -> float | None:
        parts = (self._groups, self._commits, self._receiving)
        times = (self._outbox.next_retry(), *(part.next_deadline() for part in parts))
        return min((at for at in times if at is not None), default=None)

    def check_invariants(self) -> None:
        for part in (self._groups, self._outbox, self._commits, self._receiving, self._sending, self._completing):
            part.check_invariants()

    # ------------------------------------------------------------ groups

    def _adopt(self, new: ReplicaGroup, now: float) -> list[ev.Effect]:
        known = self._groups.get(new.group)
        if new.epoch < self._groups.epoch(new.group):
            return []
        if known is not None and new.epoch == known.epoch:
            if not self._groups.change_addresses(new):
                return []
            return self._outbox.change_addresses(new.group, {m.worker.worker_id: m.worker for m in new.members})
        effects = self._groups.adopt(new)
        effects += self._sending.adopted(new)
        for key in self._commits.of_group(new.group):
            if key not in self._outbox:
                effects += self._sending.push(self._commits.entry(key))
            effects += self._completing.try_complete(key)
        return self._forwarded(new.group, effects + self._receiving.adopted(new, now))

    def _forwarded(self, group: GroupId, effects: list[ev.Effect]) -> list[ev.Effect]:
        """Files of others have been accepted, so some may go on from here."""
        self._sending.forwarded(group)
        return effects

    def _leave(self, group: GroupId) -> list[ev.Effect]:
        self._groups.leave(group)
        return [ev.AskForGroup(group)] if self._commits.of_group(group) else []

    # ------------------------------------------------------------ files and commits

    def _file_stored(self, entry: FileEntry, now: float, *, written: bool) -> list[ev.Effect]:
        effects = self._arrived(entry, now)
        if self._groups.forgotten(entry.store.group):
            return effects
        awaited = key_of(entry) in self._commits and key_of(entry) not in self._outbox
        return effects + self._sending.push(entry) if written or awaited else effects

    def _arrived(self, entry: FileEntry, now: float) -> list[ev.Effect]:
        if self._groups.forgotten(entry.store.group):
            return self._forgetting.drop(entry.store.job)
        return self._completing.arrived(entry, now)

    def _commit_requested(self, event: ev.CommitRequested, now: float) -> list[ev.Effect]:
        store = event.entry.store
        if self._groups.forgotten(store.group):
            return [*self._forgetting.drop(store.job), self._forgetting.refuse_commit(event.request, store)]
        self._commits.add(Commit(event.request, event.entry, event.patience_s, now), now)
        # Push it even if the commit is already complete: the other members still need their copies.
        return self._completing.recheck(store) + self._sending.push(event.entry)

    def _removed(self, event: ev.FilesRemoved) -> list[ev.Effect]:
        effects: list[ev.Effect] = []
        for name in event.names:
            key = FileKey(event.store, name)
            effects += self._sending.removed(key)
            if event.damaged:  # upstreams that wait for members behind this one have to offer the file again
                effects += self._receiving.refuse(key, ev.Refusal.CHECKSUM, "damaged after it had come", self._me)
            self._receiving.removed(key)
        return effects + self._groups.damaged(event.store.group) if event.damaged else effects

    def _tick(self, now: float) -> list[ev.Effect]:
        effects = self._slow_commits.tick(now)
        effects += self._outbox.retry(now)
        effects += self._receiving.tick(now)
        return effects + self._groups.tick(now, self._receiving.incomplete)
