"""Deliberate bugs in how epochs, incarnations and catch-ups are treated; see bugs.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest

from replication_manager.protocol.workers.membership import Membership
from rhino_core.ids import Epoch, Lane, ReplicaGroup, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.chain import membership
from worker_runtime.protocol.chain.machine import ChainMachine
from worker_runtime.protocol.chain.membership import GroupState
from worker_runtime.protocol.chain.outbox import Outbox
from worker_runtime.protocol.chain.receiving import Upstreams
from worker_runtime.protocol.copies import pulling
from worker_runtime.protocol.keys import FileKey
from worker_runtime.protocol.versions import closure

Patch = pytest.MonkeyPatch


def group_of_an_older_epoch_is_adopted(patch_: Patch) -> None:
    """A late message of the manager takes a sidecar back to a group that it has left behind."""
    original = ChainMachine._adopt

    def adopt(self: ChainMachine, group: ReplicaGroup, now: float) -> list[ev.Effect]:
        if group.epoch >= self.view.epoch(group.group):
            return original(self, group, now)
        with patch.dict(self._groups._epochs, {group.group: group.epoch}):
            return original(self, group, now)

    patch_.setattr(ChainMachine, "_adopt", adopt)


def new_life_starts_no_catch_up(patch_: Patch) -> None:
    """A member that comes back without what it had is taken for the one that was caught up from."""
    original = GroupState.adopt

    def adopt(self: GroupState, new: ReplicaGroup, me: Worker) -> list[ev.Effect]:
        with patch.object(membership, "incarnation_of", lambda worker: (worker.worker_id, "")):
            return original(self, new, me)

    patch_.setattr(GroupState, "adopt", adopt)


def no_new_offer_to_who_has_stored(patch_: Patch) -> None:
    """A member that has stored a file, and does not hold its version, is not offered it again on a new link."""
    original = Outbox.connected

    def connected(self: Outbox, worker_id: str, lane: Lane) -> list[ev.Effect]:
        stored = {(o.entry.store, o.entry.name) for o in self.values() if o.stored_by(o.to)}
        effects = original(self, worker_id, lane)
        return [e for e in effects if not isinstance(e, ev.OfferFile) or (e.entry.store, e.entry.name) not in stored]

    patch_.setattr(Outbox, "connected", connected)


def acks_of_another_epoch_are_passed_on(patch_: Patch) -> None:
    """The sender of a file under one epoch gets only the acknowledgements given under another one."""

    def acknowledge(self: Upstreams, key: FileKey, member: Worker, *, holds: bool, epoch: Epoch) -> list[ev.Effect]:
        for waiting in self._waiting.get(key, {}).values():
            waiting.epoch = epoch
        return original(self, key, member, holds=holds, epoch=epoch)

    original = Upstreams.acknowledge
    patch_.setattr(Upstreams, "acknowledge", acknowledge)


def inventory_of_any_epoch_counts(patch_: Patch) -> None:
    """A catch-up believes a member that has not heard of the new members, and stores on without them."""

    def counted(order: ev.StartCatchUp, answers: Sequence[Any]) -> list[pulling.Inventory]:
        return [answer for answer in answers if answer is not None]

    patch_.setattr(pulling, "counted", counted)


def snapshot_of_version_1_is_forgotten(patch_: Patch) -> None:
    """Changelogs from version 1 on are taken for a closure of a store with column families."""
    patch_.setattr(closure.StoreCatalogue, "_replayable_from_nothing", lambda self, first: first.version == 1)


def any_incarnation_is_present(patch_: Patch) -> None:
    """The manager takes a worker that has lost its disk for the one that it was before."""

    def is_present(self: Membership, worker: Worker) -> bool:
        record = self.records.get(worker.worker_id)
        return record is not None and record.present

    patch_.setattr(Membership, "is_present", is_present)


EPOCH_BUGS = [
    group_of_an_older_epoch_is_adopted,
    new_life_starts_no_catch_up,
    no_new_offer_to_who_has_stored,
    acks_of_another_epoch_are_passed_on,
    inventory_of_any_epoch_counts,
    snapshot_of_version_1_is_forgotten,
    any_incarnation_is_present,
]
