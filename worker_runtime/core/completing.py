"""What a file that comes makes complete: snapshots to be shown, versions to be acknowledged, commits to be answered."""

from __future__ import annotations

from rhino.ids import FileEntry, FileKind, Member, ReplicaGroup, StoreId
from worker_runtime.core import blocks
from worker_runtime.core import events as ev
from worker_runtime.core.forgetting import Forgetting
from worker_runtime.core.membership import life
from worker_runtime.core.outbox import FileKey


class Completing(Forgetting):
    """The part of the chain machine that counts copies."""

    def _arrived(self, entry: FileEntry, now: float) -> list[ev.Effect]:
        """A file came from anywhere: what of its store is complete now is shown and acknowledged again.

        A zip is shown only when every file that it names is here; a file with a waiting commit when that completes.
        """
        group = entry.store.group
        if self.forgotten(group):
            return self._drop_job(group.job)
        state = self._groups.get(group)
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
            if entry is None or not self._holds(entry):
                continue  # a file that has just gone is not held, whatever comes: FilesRemoved follows
            self._unheld[store].discard(name)
            key = FileKey(store, name)
            effects += self._upstreams.tell(key, self._me, holds=True, epoch=self.epoch(store.group))
            self._forget_upstreams(key)
        for key in self._commits.of_store(store):
            effects += self._try_complete(key)
        return effects

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
