"""Deliberate bugs, by patching the cores: the checkers must find each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from replication_manager.protocol import events as manager_ev
from replication_manager.protocol.groups import logged as logged_core
from replication_manager.protocol.groups import rules
from replication_manager.protocol.machine import ReplicationMachine
from replication_manager.protocol.placement.placing import Placing
from rhino_core.ids import NO_EPOCH, FileEntry, FileKind, GroupId, Member, Worker
from tests.simulation import manager as manager_module
from tests.simulation.catch_up import CatchUp
from tests.simulation.sidecar import Sidecar
from tests.simulation.streams import Stream
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain.completing import Completing
from worker_runtime.protocol.chain.groups import Groups
from worker_runtime.protocol.chain.machine import ChainMachine
from worker_runtime.protocol.chain.outbox import Outbox
from worker_runtime.protocol.chain.receiving import Receiving
from worker_runtime.protocol.chain.sending import Sending
from worker_runtime.protocol.copies import excess
from worker_runtime.protocol.credit import GrantPool
from worker_runtime.protocol.keys import FileKey, incarnation_of
from worker_runtime.protocol.versions import closure

Patch = pytest.MonkeyPatch


def ack_of_another_epoch_counts(patch_: Patch) -> None:
    """An acknowledgement given before an epoch changed is taken for one of the new epoch."""
    original = Completing.acknowledged

    def acknowledged(self: Completing, event: ev.AckReceived, now: float) -> list[ev.Effect]:
        group = self._groups.get(event.store.group)
        return original(self, dataclasses.replace(event, epoch=group.epoch) if group else event, now)

    patch_.setattr(Completing, "acknowledged", acknowledged)


def stale_epoch_is_accepted(patch_: Patch) -> None:
    """A receiver takes and acknowledges files under epochs that have passed."""

    def as_of(groups: Groups, group: GroupId, epoch: Any) -> Any:
        return patch.dict(groups._epochs, {group: epoch} if epoch < groups.epoch(group) else {})

    begin, stored = Receiving.begin, Receiving.stored

    def stale_begin(self: Receiving, event: ev.BeginReceived, now: float) -> list[ev.Effect]:
        if event.epoch >= self._groups.epoch(event.entry.store.group):
            return begin(self, event, now)
        with as_of(self._groups, event.entry.store.group, event.epoch):
            return begin(self, event, now)

    def stale_stored(self: Receiving, accepted: ev.BeginReceived, now: float) -> list[ev.Effect]:
        with as_of(self._groups, accepted.entry.store.group, accepted.epoch):
            return stored(self, accepted, now)

    patch_.setattr(Receiving, "begin", stale_begin)
    patch_.setattr(Receiving, "stored", stale_stored)


def epochs_forgotten_at_restart(patch_: Patch) -> None:
    """A sidecar starts as if it had never seen an epoch."""
    original = ChainMachine.__init__

    def start(self: ChainMachine, me: Worker, catalogue: closure.Catalogue, epochs: object, *others: Any) -> None:
        original(self, me, catalogue, {}, *others)

    patch_.setattr(ChainMachine, "__init__", start)


def one_file_is_a_copy(patch_: Patch) -> None:
    """A member that has one file of a version says that it holds the version."""
    patch_.setattr(closure.StoreCatalogue, "holds_closure", lambda self, entry: True)


def zip_counts_without_its_files(patch_: Patch) -> None:
    """A member that can open a version says that it holds the version's snapshot."""

    def holds(self: closure.StoreCatalogue, entry: FileEntry) -> bool:
        return entry.version is None or self.holds(entry.version)

    patch_.setattr(closure.StoreCatalogue, "holds_closure", holds)


def lineage_is_not_looked_at(patch_: Patch) -> None:
    """A changelog alone is taken for its version's closure."""
    original = closure.StoreCatalogue.holds

    def holds(self: closure.StoreCatalogue, version: Any) -> bool:
        return f"{version}.changelog" in self or original(self, version)

    patch_.setattr(closure.StoreCatalogue, "holds", holds)


def snapshot_exposed_early(patch_: Patch) -> None:
    """A zip is shown although files that it names are not here."""

    def every_zip(self: closure.StoreCatalogue, name: str) -> Iterator[str]:
        return (f.entry.name for f in self.files() if f.entry.name.endswith(".zip"))

    patch_.setattr(closure.StoreCatalogue, "whole_snapshots_with", every_zip)


def floor_ignores_closures(patch_: Patch) -> None:
    """Retention deletes by number only, also what the floor's own closure needs."""

    def below(catalogue: closure.StoreCatalogue, floor: Any, pins: Any = (), busy: Any = ()) -> tuple[str, ...]:
        return tuple(f.entry.name for f in catalogue.files() if f.version and f.version.version < floor.version)

    patch_.setattr(closure, "collectable", below)


def pins_are_ignored(patch_: Patch) -> None:
    """Retention deletes what a session has open."""
    original = closure.collectable
    patch_.setattr(closure, "collectable", lambda catalogue, floor, pins, busy: original(catalogue, floor, (), busy))


def credit_returns_twice(patch_: Patch) -> None:
    """A sender learns of more credit than the receiver has reserved, and the receiver does not notice."""
    original = GrantPool.settled
    patch_.setattr(GrantPool, "settled", lambda self, stream, size: 2 * original(self, stream, size))
    patch_.setattr(GrantPool, "received", lambda self, stream, size: _receive_unchecked(self, stream, size))


def _receive_unchecked(pool: GrantPool, stream: int, size: int) -> None:
    pool._streams[stream].buffered_bytes += size


def limit_is_per_stream(patch_: Patch) -> None:
    """Every stream gets a whole window, however many there are."""
    patch_.setattr(GrantPool, "_free_share", lambda self, wanted_bytes: wanted_bytes)


def epochs_issued_again(patch_: Patch) -> None:
    """A restarted manager begins in the generation of its former process."""
    start = manager_module.Manager.start

    def without_generation(self: manager_module.Manager) -> None:
        self.journal.generation = 0
        start(self)

    patch_.setattr(manager_module.Manager, "start", without_generation)


def whole_without_catching_up(patch_: Patch) -> None:
    """A new member calls itself whole and pulls nothing."""

    def finished(self: CatchUp) -> None:
        self._me.handle(ev.CatchUpFinished(self.order.group, self.order.epoch))

    patch_.setattr(CatchUp, "_pull", finished)


def too_few_copies(patch_: Patch) -> None:
    """The manager asks for the writer's copy alone."""
    patch_.setattr(rules, "required_copies", lambda settings, members: 1)


def acknowledged_before_stored(patch_: Patch) -> None:
    """A receiver reports a file that is not on its disk yet."""

    def finish_late(self: Stream, transfer: int, entry: Any) -> None:
        self._receiver.catalogue.add(entry, self._world.now)
        self._receiver.later(0.5, lambda: self._receiver.store(entry))
        self._receiver.handle(ev.TransferStored(transfer))

    patch_.setattr(Stream, "_finish", finish_late)


def not_offered_again(patch_: Patch) -> None:
    """A broken link makes the sender forget the files that were under way."""

    def connected(self: Outbox, worker_id: str, lane: Any) -> list[ev.Effect]:
        first = (worker_id, lane) not in self.__dict__.setdefault("seen", set())
        self.__dict__["seen"].add((worker_id, lane))
        if first:
            return original(self, worker_id, lane)
        self._links.add((worker_id, lane))
        return []

    original = Outbox.connected
    patch_.setattr(Outbox, "connected", connected)


def member_back_unproved(patch_: Patch) -> None:
    """A member that has lost power, or its disk, counts as whole when it is back."""

    def known_as(members: rules.Members, worker: Worker) -> rules.Members:
        return tuple(Member(worker, m.whole) if m.worker.worker_id == worker.worker_id else m for m in members)

    patch_.setattr(rules, "known_as", known_as)


def late_snapshot_takes_ownership(patch_: Patch) -> None:
    """A worker that commits a snapshot is taken for the writer of its newest version, and for the owner."""
    original = Sidecar.commit

    def commit(self: Sidecar, request: int, entry: FileEntry, done: Any) -> None:
        original(self, request, entry, done)
        newest = self.catalogue.store(entry.store).newest_held()
        if self.up and newest is not None and entry.kind is FileKind.SNAPSHOT:
            self.written[entry.store] = newest

    patch_.setattr(Sidecar, "commit", commit)
    patch_.setattr(logged_core, "OWNER_STREAK", 1)


def credit_returns_on_forwarding(patch_: Patch) -> None:
    """Credit comes back once the file has been forwarded to all behind the receiver, not when it is on its disk."""
    original = Stream._written

    def written(self: Stream, transfer: int, size: int, *, last: bool) -> None:
        entry = self._accepted.get(transfer)
        if entry is None or not self.open:
            original(self, transfer, size, last=last)
            return
        give, key = self.give, FileKey(entry.store, entry.name)

        def give_when_forwarded(credit_bytes: int) -> None:
            stored = key.name in self._receiver.disk.files[key.store]
            if not stored or key in self._receiver.machine._outbox:
                self._receiver.later(0.05, lambda: give_when_forwarded(credit_bytes))
            elif self.open:
                give(credit_bytes)

        with patch.object(self, "give", give_when_forwarded):
            original(self, transfer, size, last=last)

    patch_.setattr(Stream, "_written", written)


def delete_overtakes_the_bulk_lane(patch_: Patch) -> None:
    """Retention deletes data files that no zip names yet, while the zip that does is on its way."""
    original = closure.collectable

    def collectable(catalogue: closure.StoreCatalogue, floor: Any, pins: Any, busy: Any) -> tuple[str, ...]:
        named = {name for entry in catalogue.entries() for name in entry.references}
        unnamed = [f.entry.name for f in catalogue.files() if not f.kind.versioned and f.entry.name not in named]
        return tuple(dict.fromkeys((*original(catalogue, floor, pins, busy), *unnamed)))

    patch_.setattr(closure, "collectable", collectable)


def epochs_reissued_after_losing_the_journal(patch_: Patch) -> None:
    """A manager with an empty journal begins at the first epoch, whatever its sidecars have seen."""
    start, handle = manager_module.Manager.start, ReplicationMachine.handle

    def without_journal(self: manager_module.Manager) -> None:
        self.journal.generation = 0
        self.journal.groups.clear()
        self.journal.workers.clear()
        start(self)

    def not_looking(self: ReplicationMachine, event: Any, *, now: float) -> Any:
        if isinstance(event, manager_ev.Registered):
            reports = tuple(dataclasses.replace(report, epoch=NO_EPOCH) for report in event.reports)
            event = dataclasses.replace(event, highest_epoch=NO_EPOCH, reports=reports)
        return handle(self, event, now=now)

    patch_.setattr(manager_module.Manager, "start", without_journal)
    patch_.setattr(ReplicationMachine, "handle", not_looking)


def excess_deleted_on_the_managers_word(patch_: Patch) -> None:
    """A removed worker deletes its copy because the manager says that enough members are whole."""

    def everything(here: closure.StoreCatalogue, members: Any, copies: int, **kept: Any) -> tuple[str, ...]:
        stay = {name for pin in kept["pins"] for name in here.reach(pin)} | set(kept["in_use"])
        return closure.delete_order(f for f in here.files() if f.entry.name not in stay)

    patch_.setattr(excess, "removable", everything)


def drained_worker_leaves_at_once(patch_: Patch) -> None:
    """A drained secondary leaves before the others have its copies."""

    def without(settings: Any, members: rules.Members, draining: Any, sources: Any, present: Any) -> rules.Members:
        return (members[0], *(m for m in members[1:] if m.worker.worker_id not in draining))

    patch_.setattr(rules, "without_draining", without)


def drained_worker_is_given_copies(patch_: Patch) -> None:
    """Placement does not look at who is to be emptied."""
    original = Placing.choose

    def choose(self: Placing, *arguments: Any) -> list[Worker]:
        with patch.object(self._membership, "draining", set()):
            return original(self, *arguments)

    patch_.setattr(Placing, "choose", choose)


def waiting_commit_asks_nobody_twice(patch_: Patch) -> None:
    """Under a new epoch a waiting commit asks only those that have not acknowledged it under the former one."""

    def offer_again(self: Sending, key: FileKey, group: Any) -> list[ev.Effect]:
        out = self._outbox.get(key)
        assert out is not None
        chain = [w for w in self._others(group) if incarnation_of(w) not in out.holders()]
        return self._outbox.offer(out.entry, group.epoch, tuple(chain))

    patch_.setattr(Sending, "_offer_again", offer_again)


BUGS = [
    ack_of_another_epoch_counts,
    stale_epoch_is_accepted,
    epochs_forgotten_at_restart,
    one_file_is_a_copy,
    zip_counts_without_its_files,
    lineage_is_not_looked_at,
    snapshot_exposed_early,
    floor_ignores_closures,
    pins_are_ignored,
    credit_returns_twice,
    limit_is_per_stream,
    epochs_issued_again,
    whole_without_catching_up,
    too_few_copies,
    acknowledged_before_stored,
    not_offered_again,
    member_back_unproved,
    late_snapshot_takes_ownership,
    credit_returns_on_forwarding,
    delete_overtakes_the_bulk_lane,
    epochs_reissued_after_losing_the_journal,
    excess_deleted_on_the_managers_word,
    drained_worker_leaves_at_once,
    drained_worker_is_given_copies,
    waiting_commit_asks_nobody_twice,
]
