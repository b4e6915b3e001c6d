"""Completion by a new file or reply: snapshots to list, versions to acknowledge, commits to answer."""

from __future__ import annotations

from rhino_core.errors import AlreadyThereError
from rhino_core.ids import FileEntry, FileKind, StoreId, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.commits import Commits
from worker_runtime.protocol.chain.groups import Groups
from worker_runtime.protocol.chain.outbox import Outbox
from worker_runtime.protocol.chain.receiving import Receiving
from worker_runtime.protocol.keys import FileKey, incarnation_of
from worker_runtime.protocol.versions.closure import Catalogue


class Completing:
    """Records replies of members, counts copies and answers commits."""

    def __init__(
        self,
        me: Worker,
        catalogue: Catalogue,
        groups: Groups,
        outbox: Outbox,
        commits: Commits,
        receiving: Receiving,
    ) -> None:
        self._me = me
        self._my_incarnation = incarnation_of(me)
        self._catalogue = catalogue
        self._groups = groups
        self._outbox = outbox
        self._commits = commits
        self._receiving = receiving

    def check_invariants(self) -> None:
        for out in self._outbox.values():
            key = FileKey(out.entry.store, out.entry.name)
            assert not out.done() or key in self._commits, f"{key} is done but in the outbox"

    # ------------------------------------------------------------ replies of members

    def acknowledged(self, event: ev.AckReceived, now: float) -> list[ev.Effect]:
        if event.member.worker_id == self._me.worker_id:
            return []  # the ack has come full circle: each member reports its own copy itself
        key = FileKey(event.store, event.name)
        if not self._from_members(key, event.sender, event.member.worker_id):
            return []
        effects = self._receiving.upstreams.acknowledge(key, event.member, holds=event.holds, epoch=event.epoch)
        out = self._outbox.get(key)
        if out is None or out.epoch != event.epoch:
            return effects
        if out.received_again:  # the new first of the chain may still serve this member: it counts as a holder below
            out.acknowledged(event.member, holds=False)
            effects += self._outbox.break_forwarding_loop(out, self._receiving.upstreams.of(key))
        if out.acknowledged(event.member, holds=event.holds):
            self._commits.moved(key.store, now)
        if event.holds:
            effects += self.try_complete(key)
            self.settle(key)
        return effects

    def refused(self, event: ev.RefusalReceived, now: float) -> list[ev.Effect]:
        key = FileKey(event.store, event.name)
        out = self._outbox.get(key)
        if out is None or not self._from_members(key, event.sender, event.member.worker_id):
            return []
        if event.reason is ev.Refusal.STALE_EPOCH:
            out.refused_by.add(event.member.worker_id)
            return [ev.AskForGroup(key.store.group)] if event.current_epoch > out.epoch else []
        if event.reason is ev.Refusal.NAME_CONFLICT:
            return self._conflict(key, event)
        if event.reason is ev.Refusal.NOT_A_WRITER and key not in self._commits:
            effects = self._outbox.drop(key)
            self._receiving.release(key)  # this worker is no member any more: the new chain goes round it
            return effects
        out.refused(event.member.worker_id)
        self._outbox.retry_later(key, now)
        full = event.reason is ev.Refusal.STORAGE and incarnation_of(event.member) == incarnation_of(out.to)
        return self._outbox.bypass_full(out, now) if full else []

    def _from_members(self, key: FileKey, *worker_ids: str) -> bool:
        """Whether all of them are members. A link to a former member may still be open."""
        members = self._groups.writers.members(key.store.group)
        return all(worker_id in members for worker_id in worker_ids)

    def _conflict(self, key: FileKey, event: ev.RefusalReceived) -> list[ev.Effect]:
        """The file must never be sent again: fail the commits and inform the waiting upstreams."""
        error = AlreadyThereError(
            f"{key.store}/{key.name}: {event.member.worker_id} has this name with another checksum ({event.message})"
        )
        effects = self._outbox.drop(key)
        current = self._groups.epoch(key.store.group)
        effects += [ev.CompleteCommit(commit.request, 0, current, error) for commit in self._commits.pop(key)]
        effects += self._receiving.refuse(key, event.reason, event.message, event.member)
        self._receiving.upstreams.forget(key)
        return effects

    # ------------------------------------------------------------ new files

    def arrived(self, entry: FileEntry, now: float) -> list[ev.Effect]:
        """A file arrived, from anywhere: list what is complete now, and acknowledge again.

        A zip is listed only when all its data files are here. A file with a waiting commit is listed when the commit
        completes.
        """
        self._groups.file_arrived(entry.store.group, now)
        effects: list[ev.Effect] = []
        if entry.kind is not FileKind.SNAPSHOT:
            effects.append(ev.MakeVisible(entry.store, entry.name))
        for name in self._catalogue.store(entry.store).whole_snapshots_with(entry.name):
            if FileKey(entry.store, name) not in self._commits:
                effects.append(ev.MakeVisible(entry.store, name))
        return effects + self.recheck(entry.store)

    def recheck(self, store: StoreId) -> list[ev.Effect]:
        """Acknowledges versions of the store that are complete here now, and completes its commits."""
        effects = self._receiving.acknowledge_again(store)
        for key in self._commits.of_store(store):
            effects += self.try_complete(key)
        return effects

    # ------------------------------------------------------------ commits

    def try_complete(self, key: FileKey) -> list[ev.Effect]:
        """Completes the commits of a file once enough whole members of the current epoch hold its version."""
        if key not in self._commits or (state := self._groups.state(key.store.group)) is None:
            return []
        group, here = state.group, self._catalogue.store(key.store)
        entry, out = self._commits.entry(key), self._outbox.get(key)
        held = out.holders() if out is not None and out.epoch == group.epoch else set()
        if here.holds_closure(entry):
            held.add(self._my_incarnation)
        holders = [member for member in group.members if incarnation_of(member.worker) in held]
        if sum(member.whole for member in holders) < group.required_copies:
            return []
        done = self._commits.pop(key)
        self.settle(key)
        effects: list[ev.Effect] = [ev.CompleteCommit(commit.request, len(holders), group.epoch) for commit in done]
        # Other members may hold a snapshot of which this worker has lost a file. It is listed here once that file is
        # back.
        shown = entry.kind is not FileKind.SNAPSHOT or key.name in here.whole_snapshots_with(key.name)
        return [ev.MakeVisible(key.store, key.name), *effects] if shown else effects

    def settle(self, key: FileKey) -> None:
        """Forgets a file held by all members. Keeps the list of its holders while a commit still waits for it."""
        if key not in self._commits and self._outbox.settle(key):
            self._receiving.release(key)
