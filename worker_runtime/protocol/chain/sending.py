"""Pushes the files of this worker's executors down the chain, and again under each new epoch (Rhino 4.2.2, phase 2)."""

from __future__ import annotations

from collections.abc import Set

from rhino_core.ids import FileEntry, GroupId, ReplicaGroup, StoreId, Version, Worker, parse_name
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.commits import Commits
from worker_runtime.protocol.chain.groups import Groups
from worker_runtime.protocol.chain.outbox import Outbox
from worker_runtime.protocol.chain.outgoing import Delivery
from worker_runtime.protocol.chain.receiving import Receiving
from worker_runtime.protocol.keys import FileKey, incarnation_of, key_of
from worker_runtime.protocol.versions.closure import Catalogue


class Sending:
    """This worker as the upstream of others: chooses chains for files and offers them through the outbox."""

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
        self._catalogue = catalogue
        self._groups = groups
        self._outbox = outbox
        self._commits = commits
        self._receiving = receiving
        self._without_group: dict[FileKey, FileEntry] = {}  # written before this worker knew the group
        self._given_up: dict[StoreId, set[str]] = {}  # files of commits for which nobody waits any more

    def check_invariants(self) -> None:
        for key in self._without_group:
            assert self._groups.get(key.store.group) is None, f"{key} waits for a group that is known"
        for store, names in self._given_up.items():
            assert names, f"{store} has nothing that was given up"
            assert not any(FileKey(store, name) in self._outbox for name in names), f"{store}: {names} are pushed"
        for out in self._outbox.values():
            key = key_of(out.entry)
            assert self._me.worker_id not in {w.worker_id for w in out.chain}, f"{key} is offered to its sender"
            assert self._catalogue.get(*key) is not None, f"{key} is offered but not here"
            adopted = self._groups.get(key.store.group)
            assert adopted is None or out.epoch == adopted.epoch, f"{key} is offered under {out.epoch}"

    def push(self, entry: FileEntry) -> list[ev.Effect]:
        """Pushes a file written by an executor of this worker."""
        key, group = key_of(entry), self._groups.get(entry.store.group)
        if self._catalogue.get(*key) is None:
            return []  # damaged since; it is pushed when it is back
        effects = self._resume(entry)
        if group is None:
            self._without_group[key] = entry
            return [*effects, ev.AskForGroup(entry.store.group)]
        return effects + self._outbox.offer(entry, group.epoch, self._others(group))

    def _resume(self, entry: FileEntry) -> list[ev.Effect]:
        """The file is wanted: push the files needed by it, too, even if they were given up."""
        given_up = self._given_up.get(entry.store)
        if given_up is None:
            return []
        self._not_given_up(key_of(entry))
        store = self._catalogue.store(entry.store)
        needed = {*entry.references, *(store.closure(entry.version) or () if entry.version is not None else ())}
        files = [file for name in sorted(needed & given_up) if (file := store.get(name)) is not None]
        return [effect for file in files for effect in self.push(file)]

    def give_up(self, key: FileKey) -> list[ev.Effect]:
        """Nobody waits for this file any more: push neither it nor the files that only it needs.

        Whoever asks for it again has another attempt with other bytes, and these need the links.
        """
        if key in self._commits:
            return []
        if self._receiving.upstreams.of(key):  # they rely on this worker to forward the file
            if self._outbox.settle(key):
                self._receiving.release(key)
            return []
        effects, entry = self._outbox.drop(key, stop=True), self._catalogue.get(*key)
        if effects or self._without_group.pop(key, None) is not None:
            self._given_up.setdefault(key.store, set()).add(key.name)
        if entry is None or not entry.references:
            return effects
        given_up = self._given_up.get(key.store, ())
        others = (file for file in self._catalogue.store(key.store).entries() if file.name not in given_up)
        needed = {name for file in others if file.name != entry.name for name in file.references}
        for name in entry.references:
            if name not in needed:
                effects += self.give_up(FileKey(key.store, name))
        return effects

    def given_up(self, store: StoreId) -> Set[str]:
        """Files here that nobody needs elsewhere: their commits have failed."""
        return self._given_up.get(store, frozenset())

    def forwarded(self, group: GroupId) -> None:
        """Files forwarded to here by other members are needed after all."""
        given_up = [FileKey(store, name) for store, names in self._given_up.items() for name in names]
        for key in given_up:
            if key.store.group == group and key in self._outbox:
                self._not_given_up(key)

    def _not_given_up(self, key: FileKey) -> None:
        names = self._given_up.get(key.store, set())
        names.discard(key.name)
        if not names:
            self._given_up.pop(key.store, None)

    def adopted(self, group: ReplicaGroup) -> list[ev.Effect]:
        """The group has a new epoch: offer its files under it."""
        effects: list[ev.Effect] = []
        for key in self._outbox.of_group(group.group):
            effects += self._offer_again(key, group)
        for key in [key for key in self._without_group if key.store.group == group.group]:
            effects += self.push(self._without_group.pop(key))
        return effects

    def push_closure(self, entry: FileEntry) -> list[ev.Effect]:
        """Pushes the whole closure of a version to members that stored the file but cannot open the version.

        Such a member lacks older files. If this worker is not a member of the group, nobody else would send these
        files: members catch up from members only, and may have collected them before a late snapshot that names them
        arrived from here. A member sends them to whole members: it may have loaded them from the archive. Other members
        are catching up.
        """
        group, out = self._groups.get(entry.store.group), self._outbox.get(key_of(entry))
        if group is None or out is None or entry.version is None:
            return []
        member = group.member(self._me.worker_id) is not None
        wanting = {incarnation_of(one.worker) for one in group.members if one.whole or not member}
        stored = (worker for worker in out.chain if out.delivery(worker) is Delivery.STORED)
        lacking = tuple(worker for worker in stored if incarnation_of(worker) in wanting)
        store = self._catalogue.store(entry.store)
        files = [file for name in store.closure(entry.version) or () if (file := store.get(name)) is not None]
        idle = sorted(
            (file for file in files if key_of(file) not in self._outbox), key=lambda f: (f.lane.value, f.name)
        )
        return [effect for file in idle for effect in self._outbox.offer(file, out.epoch, lacking)]

    def references_under_way(self, zip_: FileEntry) -> bool:
        """Whether files named by the zip are still being pushed."""
        return any(FileKey(zip_.store, name) in self._outbox for name in zip_.references)

    def names_in_use(self, store: StoreId, floor: Version | None) -> set[str]:
        """Names of files with a waiting commit or a push under way. They must not be collected.

        Excludes names that are only pushed and lie below the floor: a member may never come to hold such a version.
        """
        pushed = (key for key in self._outbox.of_store(store) if not _below(key, floor))
        without_group = (key for key in self._without_group if key.store == store)
        return {key.name for key in (*pushed, *self._commits.of_store(store), *without_group)}

    def removed(self, key: FileKey) -> list[ev.Effect]:
        """The file is no longer here."""
        self._without_group.pop(key, None)
        self._not_given_up(key)
        return self._outbox.drop(key)

    def groups_asked_for(self) -> set[GroupId]:
        """Groups of files that wait for the manager's description of their group."""
        return {key.store.group for key in self._without_group}

    def forget_group(self, group: GroupId) -> list[ev.Effect]:
        self._without_group = {k: entry for k, entry in self._without_group.items() if k.store.group != group}
        self._given_up = {store: names for store, names in self._given_up.items() if store.group != group}
        return [effect for key in self._outbox.of_group(group) for effect in self._outbox.drop(key)]

    def _offer_again(self, key: FileKey, group: ReplicaGroup) -> list[ev.Effect]:
        """Offers a file under a new epoch.

        A file with a waiting commit needs a new ack from every member. Other files need only the missing acks. This
        includes files forwarded for others: their writer may be gone.
        """
        out = self._outbox.get(key)
        assert out is not None
        chain = self._others(group)
        if key not in self._commits:
            sources, holders = self._receiving.upstreams.of(key), out.holders()
            chain = tuple(w for w in chain if incarnation_of(w) not in holders and w.worker_id not in sources)
        return self._outbox.offer(out.entry, group.epoch, chain)

    def _others(self, group: ReplicaGroup) -> tuple[Worker, ...]:
        return tuple(m.worker for m in group.members if m.worker.worker_id != self._me.worker_id)


def _below(key: FileKey, floor: Version | None) -> bool:
    version = parse_name(key.name).version
    return floor is not None and version is not None and version.version < floor.version
