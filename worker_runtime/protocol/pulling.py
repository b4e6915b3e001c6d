"""Decides which inventories count in a catch-up and which files it pulls (ARCHITECTURE.md, "Catch-up and
anti-entropy").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rhino_core.ids import Epoch, FileEntry, ReplicaGroup, StoreId, Version, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.closure import Catalogue, wanted
from worker_runtime.protocol.copy_policy import policy_of


@dataclass(frozen=True, slots=True)
class Inventory:
    """The files of a group that a worker stores, and the highest epoch of the group that it has seen.

    `worker` is the worker as it described itself in the answer.
    """

    worker: Worker
    files: tuple[FileEntry, ...]
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Found:
    """A file and the workers that have it."""

    entry: FileEntry
    holders: tuple[Worker, ...]


def counted(order: ev.StartCatchUp, answers: Iterable[Inventory | None]) -> list[Inventory]:
    """The inventories that count. What they name is pulled, but a catch-up ends only with those of all members.

    An outdated inventory does not count: its member had not yet seen the epoch. Such a member may not have pushed to
    this worker what it stored after its answer.
    """
    return [inventory for inventory in answers if inventory is not None and inventory.epoch >= order.epoch]


def finds(
    inventories: Iterable[Inventory],
    here: Catalogue,
    me: Worker,
    group: ReplicaGroup | None,
    floor: Callable[[StoreId], Version | None],
) -> list[Found]:
    """The files that this worker should pull now, and the workers that have each of them.

    `group` is the group as last adopted. `floor` returns the floor of a store.
    """
    by_store: dict[StoreId, list[FileEntry]] = {}
    holders: dict[tuple[StoreId, str], list[Worker]] = {}
    for inventory in inventories:
        for entry in inventory.files:
            by_store.setdefault(entry.store, []).append(entry)
            holders.setdefault((entry.store, entry.name), []).append(inventory.worker)

    def lacking(store: StoreId, entries: list[FileEntry]) -> Sequence[FileEntry]:
        if group is None:
            return wanted(here.store(store), entries, floor(store))
        return policy_of(group).missing(me, here.store(store), entries, group, floor(store))

    return [
        Found(entry, tuple(holders[entry.store, entry.name]))
        for store, entries in by_store.items()
        for entry in lacking(store, entries)
    ]


def left_to_the_chain(order: ev.StartCatchUp, before: Sequence[Found] | None, now: Sequence[Found]) -> bool:
    """Whether a member that was whole should wait, because missing files arrive through the chain: pulling them would
    double the work.

    `before`: what this worker lacked at the previous check, None at the first one.
    """
    return order.whole and bool(now) and (before is None or len(now) < len(before))
