"""Facts from Spark's commit log about groups: floors, the newest logged versions, and their writers."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from replication_manager.protocol.events import BatchPublished
from replication_manager.protocol.workers.worker_record import WorkerRecord
from rhino_core.errors import InvalidRequestError
from rhino_core.ids import GroupId, StoreId, StoreVersion, Version

OWNER_STREAK = 2  # logged batches in a row that another member must write before it becomes the owner
# A guest takes the place of a member, which may have files that the guest lacks. Busy slots, speculation and an old map
# at the driver send only single batches elsewhere. A run this long means that the map cannot be obeyed.
GUEST_STREAK = 8  # logged batches in a row that a guest must write before it joins the group
STREAK_GAP = 11  # batches between two counted ones of a streak: reports come with heartbeats only
LOGGED_KEPT = 16  # logged versions kept per store, to match reports that arrive later


@dataclass(slots=True)
class GroupLog:
    """The log of one group. `newest`: highest version logged. `counted`: newest version in the streak.

    `owner`: of the group at the time of that count.
    """

    versions: dict[StoreId, deque[Version]] = field(default_factory=dict)
    newest: int = 0
    writer: str = ""
    streak: int = 0
    counted: int = 0
    owner: str = ""


def check_published(event: BatchPublished) -> None:
    """Checks a batch, because a wrong floor would delete files, even of other jobs. Raises InvalidRequestError."""
    other = next((named for named in (*event.logged, *event.floors) if named.store.job != event.job), None)
    if other is not None:
        raise InvalidRequestError(f"batch {event.batch_id} of job {event.job} names a version of another job: {other}")
    newest = max((logged.version.version for logged in event.logged), default=0)
    high = next((floor for floor in event.floors if floor.version.version > newest), None)
    if high is not None:
        raise InvalidRequestError(
            f"batch {event.batch_id} of job {event.job}: floor {high} is above the newest logged version, {newest}"
        )


class LoggedVersions:
    """The floors of all stores, and the logged versions of all groups.

    Floors are journalled. Logged versions are not: the next batches show them again.
    """

    def __init__(self, floors: Iterable[StoreVersion]) -> None:
        self._groups: dict[GroupId, GroupLog] = {}
        self.floors: dict[StoreId, Version] = {}
        self._stores: dict[GroupId, tuple[StoreId, ...]] = {}  # with a floor
        for floor in floors:
            self._set_floor(floor)

    def _set_floor(self, floor: StoreVersion) -> None:
        if floor.store not in self.floors:
            group = floor.store.group
            self._stores[group] = (*self._stores.get(group, ()), floor.store)
        self.floors[floor.store] = floor.version

    def floors_of(self, group: GroupId) -> list[StoreVersion]:
        """The floors of all stores of the group."""
        return [StoreVersion(store, self.floors[store]) for store in self._stores.get(group, ())]

    def raise_floors(self, floors: Iterable[StoreVersion]) -> tuple[StoreVersion, ...]:
        """Raises floors, and returns the raised ones. A floor never falls."""
        raised = []
        for floor in floors:
            current = self.floors.get(floor.store)
            if current is None or floor.version.version > current.version:
                self._set_floor(floor)
                raised.append(floor)
        return tuple(raised)

    def add(self, logged: StoreVersion) -> None:
        """Records a version named by a batch in Spark's commit log."""
        log = self._groups.setdefault(logged.store.group, GroupLog())
        versions = log.versions.setdefault(logged.store, deque(maxlen=LOGGED_KEPT))
        if not versions or versions[-1] != logged.version:
            versions.append(logged.version)
            log.newest = max(log.newest, logged.version.version)

    def forget(self, groups: Collection[GroupId]) -> tuple[StoreId, ...]:
        """Forgets groups with the floors of their stores. Returns these stores."""
        gone = set(groups)
        for group in gone:
            self._groups.pop(group, None)
        stores = tuple(store for group in sorted(gone) for store in self._stores.pop(group, ()))
        for store in stores:
            del self.floors[store]
        return stores

    def restart(self, group: GroupId) -> None:
        """Resets the streak after the owner was chosen: a writer must write a full streak again to become the owner."""
        if log := self._groups.get(group):
            log.writer, log.streak = "", 0

    def newest(self, group: GroupId) -> list[StoreVersion]:
        """The newest logged version of each store of the group."""
        log = self._groups.get(group)
        return [StoreVersion(store, versions[-1]) for store, versions in sorted(log.versions.items())] if log else []

    def newest_by_store(self, group: GroupId) -> dict[StoreId, Version]:
        return {newest.store: newest.version for newest in self.newest(group)}

    def streak(self, group: GroupId) -> tuple[str, int]:
        """The writer of the newest counted batches of the group ("": none), and how many it wrote in a row."""
        log = self._groups.get(group)
        return (log.writer, log.streak) if log is not None else ("", 0)

    def count(self, group: GroupId, records: Iterable[WorkerRecord], owner: str) -> bool:
        """Counts the newest logged batch of the group once. Returns whether there was one to count.

        `records`: workers with a report about the group. Another `owner` than before ends a streak: the writer may have
        been lost since, and others may have written batches unknown to the manager.

        Snapshots and unlogged versions never count: only Spark's commit log is the truth.
        """
        log = self._groups.get(group)
        if log is None or log.newest <= log.counted:
            return False
        written = _newest_written(group, log, records)
        if written is None or written[0] <= log.counted:
            return False
        (number, writer), before = written, log.counted
        log.counted = number
        if owner != log.owner or number - before > STREAK_GAP:
            log.owner, log.writer, log.streak = owner, "", 0
        log.streak = log.streak + 1 if writer == log.writer else 1
        log.writer = writer
        return True


def _newest_written(group: GroupId, log: GroupLog, records: Iterable[WorkerRecord]) -> tuple[int, str] | None:
    """Number and writer of the newest logged version that a present worker reports as its own."""
    found = [
        (written.version.version, record.worker.worker_id)
        for record in records
        if record.present and group in record.reports
        for written in record.reports[group].newest_written
        if written.version in log.versions.get(written.store, ())
    ]
    return max(found, default=None)
