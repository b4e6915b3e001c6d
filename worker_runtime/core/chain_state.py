"""What the chain machine of a worker knows, and the questions that others ask it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rhino.ids import NO_EPOCH, Epoch, FileEntry, FileKind, GroupId, ReplicaGroup, StoreId, Version, Worker, parse_name
from worker_runtime.core import blocks
from worker_runtime.core import events as ev
from worker_runtime.core.closure import Catalogue
from worker_runtime.core.commits import Commits
from worker_runtime.core.lag import Lag, LagMeter
from worker_runtime.core.membership import GroupState
from worker_runtime.core.outbox import FileKey, Outbox
from worker_runtime.core.upstreams import Upstreams


class ChainState:
    """See `ChainMachine`."""

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

    def group(self, group: GroupId) -> ReplicaGroup | None:
        """The group as adopted last."""
        state = self._groups.get(group)
        return state.group if state else None

    def groups(self) -> Iterable[GroupId]:
        return self._groups.keys()

    def epoch(self, group: GroupId) -> Epoch:
        """The highest epoch seen, NO_EPOCH for an unknown group."""
        seen, fence = self._epochs.get(group, NO_EPOCH), self._fences.get(group.job)
        return seen if fence is None else max(seen, fence)

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
        owed = (key for key in self._outbox.of_store(store) if not _below(key, floor))
        groupless = (key for key in self._groupless if key.store == store)
        return {key.name for key in (*owed, *self._commits.of_store(store), *groupless)}

    def _see_epoch(self, group: GroupId, epoch: Epoch) -> list[ev.Effect]:
        if epoch <= self.epoch(group):
            return []
        self._epochs[group] = epoch
        return [ev.PersistEpoch(group, epoch)]

    def _holds(self, entry: FileEntry) -> bool:
        """Of a changelog the whole closure, of a zip all its files, of a spread block the block.

        A zip's version may open without it. But once its commit has returned, Spark writes changelogs that open with
        this snapshot only: their commits, for which tasks wait, would wait for gigabytes on the bulk lane.
        """
        store = self._catalogue.store(entry.store)
        if blocks.is_spread(self.group(entry.store.group)):  # nobody but its writer has it with its closure
            return entry.name in store
        if entry.kind is FileKind.SNAPSHOT:
            return store.has_snapshot(entry.name)
        return entry.version is None or store.holds(entry.version)

    def _settle(self, key: FileKey) -> None:
        """Forgets a file that everybody holds; while a commit waits for it, who holds it is still needed."""
        if key not in self._commits:
            self._outbox.settle(key)
            self._forget_upstreams(key)

    def _forget_upstreams(self, key: FileKey) -> None:
        if key not in self._outbox and key.name not in self._unheld.get(key.store, ()):
            self._upstreams.forget(key)


def _below(key: FileKey, floor: Version | None) -> bool:
    version = parse_name(key.name).version
    return floor is not None and version is not None and version.version < floor.version
