"""Decides on the inventories that count in a catch-up, and on the files to pull (ARCHITECTURE.md, "Catch-up and
anti-entropy").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rhino_core.ids import Epoch, FileEntry, ReplicaGroup, StoreId, Version, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.keys import same_bytes
from worker_runtime.protocol.versions.closure import Catalogue, StoreCatalogue, wanted


@dataclass(frozen=True, slots=True)
class Inventory:
    """A worker's files of a group, and the highest epoch of the group it has seen.

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


def precedence(group: ReplicaGroup | None) -> list[str]:
    """Ids of the members. If two have other bytes under one name, those of the earlier one count: whole members come
    first, and then the owner.
    """
    members = group.members if group is not None else ()
    return [member.worker.worker_id for member in sorted(members, key=lambda member: not member.whole)]


class Offers:
    """The files of other workers. `order`: precedence of the workers' bytes; those of other workers count last."""

    def __init__(self, order: Sequence[str], me: Worker) -> None:
        self._ranks = {worker_id: rank for rank, worker_id in enumerate(order)}
        self._mine = self._rank(me)
        self._of: dict[StoreId, dict[str, list[tuple[int, FileEntry, Worker]]]] = {}

    def _rank(self, worker: Worker) -> int:
        return self._ranks.get(worker.worker_id, len(self._ranks))

    def add(self, worker: Worker, files: Iterable[FileEntry]) -> None:
        rank = self._rank(worker)
        for entry in files:
            self._of.setdefault(entry.store, {}).setdefault(entry.name, []).append((rank, entry, worker))

    def stores(self) -> Iterable[StoreId]:
        return self._of.keys()

    def found(self, store: StoreId) -> dict[str, Found]:
        """The files of a store, each with the workers that have exactly these bytes."""
        found: dict[str, Found] = {}
        for name, offers in self._of.get(store, {}).items():
            _, best, _ = min(offers, key=lambda offer: offer[0])
            found[name] = Found(best, tuple(worker for _, entry, worker in offers if same_bytes(entry, best)))
        return found

    def contradicted(self, here: StoreCatalogue) -> list[FileEntry]:
        """Files here with other bytes than at a member with precedence. Somebody has planted or damaged them."""
        return [
            entry
            for entry in here.entries()
            for rank, theirs, _ in self._of.get(entry.store, {}).get(entry.name, ())
            if rank < self._mine and not same_bytes(theirs, entry)
        ]


def counted(order: ev.StartCatchUp, answers: Iterable[Inventory | None]) -> list[Inventory]:
    """The inventories that count. Their files are pulled, but a catch-up ends only with the inventories of all members.

    An outdated inventory does not count: its member had not yet seen the epoch. Such a member may not have pushed its
    later files to this worker.
    """
    return [inventory for inventory in answers if inventory is not None and inventory.epoch >= order.epoch]


def finds(
    inventories: Iterable[Inventory],
    here: Catalogue,
    me: Worker,
    group: ReplicaGroup | None,
    floor: Callable[[StoreId], Version | None],
) -> list[Found]:
    """The files to pull now, and the workers that have each of them.

    A file here counts too if a member before this one has other bytes for it: names alone prove nothing. `group` is the
    group as last adopted. `floor` returns the floor of a store.
    """
    offers = Offers(precedence(group), me)
    for inventory in inventories:
        offers.add(inventory.worker, inventory.files)

    finds: list[Found] = []
    for store in offers.stores():
        found = offers.found(store)
        contradicted = offers.contradicted(here.store(store))
        lacking = wanted(here.store(store), [of.entry for of in found.values()], floor(store))
        finds += [found[name] for name in dict.fromkeys(entry.name for entry in (*contradicted, *lacking))]
    return finds


def left_to_the_chain(order: ev.StartCatchUp, before: Sequence[Found] | None, now: Sequence[Found]) -> bool:
    """Whether a formerly whole member should wait, because missing files arrive through the chain: pulling them would
    double the work.

    `before`: this worker's missing files at the previous check, None at the first one.
    """
    return order.whole and bool(now) and (before is None or len(now) < len(before))
