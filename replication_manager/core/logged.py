"""What Spark's commit log says about groups: newest logged versions, and who keeps writing them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from replication_manager.core.membership import WorkerRecord
from rhino.ids import GroupId, StoreId, StoreVersion, Version

OWNER_STREAK = 2  # logged batches in a row that another member wrote before it becomes the owner
LOGGED_KEPT = 16  # logged versions remembered per store, to match reports that come later


@dataclass(slots=True)
class GroupLog:
    """One group. `newest`: the highest version number logged; `counted`: the newest one that the streak has counted."""

    versions: dict[StoreId, deque[Version]] = field(default_factory=dict)
    newest: int = 0
    writer: str = ""
    streak: int = 0
    counted: int = 0


class LoggedVersions:
    """Of all groups. Not journalled: it is learnt again from the next batches."""

    def __init__(self) -> None:
        self._groups: dict[GroupId, GroupLog] = {}

    def note(self, logged: StoreVersion) -> None:
        """A batch in Spark's commit log names this version."""
        log = self._groups.setdefault(logged.store.group, GroupLog())
        versions = log.versions.setdefault(logged.store, deque(maxlen=LOGGED_KEPT))
        if not versions or versions[-1] != logged.version:
            versions.append(logged.version)
            log.newest = max(log.newest, logged.version.version)

    def forget(self, group: GroupId) -> None:
        self._groups.pop(group, None)

    def restart(self, group: GroupId) -> None:
        """The owner was chosen: who wrote before that has to write as many batches again to become the owner."""
        if log := self._groups.get(group):
            log.writer, log.streak = "", 0

    def newest(self, group: GroupId) -> list[StoreVersion]:
        """The newest logged version of each store of the group."""
        log = self._groups.get(group)
        return [StoreVersion(store, versions[-1]) for store, versions in sorted(log.versions.items())] if log else []

    def steady_writer(self, group: GroupId, records: Iterable[WorkerRecord]) -> str:
        """Counts the newest logged batch of the group, once; who has now written enough of them in a row, or "".

        Never a snapshot or an unlogged version: only Spark's commit log says what happened.
        """
        log = self._groups.get(group)
        if log is None or log.newest <= log.counted:
            return ""
        written = _newest_written(group, log, records)
        if written is None or written[0] <= log.counted:
            return ""
        log.counted, writer = written
        log.streak = log.streak + 1 if writer == log.writer else 1
        log.writer = writer
        return writer if log.streak >= OWNER_STREAK else ""


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
