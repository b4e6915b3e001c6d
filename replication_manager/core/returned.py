"""Workers that come back outside a group with versions that its members do not have.

A degraded commit has one copy. When its holder is lost and replaced before anybody caught up from it, its disk still
has the version: such a worker joins as a source, and leaves again when everybody is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from replication_manager.core.membership import Report, WorkerRecord
from rhino.ids import GroupId, ReplicaGroup, StoreId, StoreVersion, Version, Worker


@dataclass(frozen=True, slots=True)
class Return:
    """What a worker held when it registered, at monotonic time `since`."""

    worker: Worker
    held: tuple[StoreVersion, ...]
    since: float


class Returned:
    """Not journalled: a restarted manager hears every worker register again."""

    def __init__(self) -> None:
        self._waiting: dict[GroupId, dict[str, Return]] = {}
        self._sources: dict[GroupId, set[str]] = {}

    def note(self, worker: Worker, reports: Iterable[Report], now: float) -> None:
        """The worker has registered."""
        for report in reports:
            if report.newest_held:
                self._waiting.setdefault(report.group, {})[worker.worker_id] = Return(worker, report.newest_held, now)

    def groups(self) -> list[GroupId]:
        """For which a decision is due."""
        return sorted(self._waiting)

    def sources(
        self,
        group: ReplicaGroup,
        records: Mapping[str, WorkerRecord],
        floors: Mapping[StoreId, Version],
        present: Callable[[Worker], bool],
    ) -> list[Worker]:
        """Those to join now: what they held at or above the floor, no whole member holds.

        Decided once every whole member that is present has been heard after the return: before that its report may
        only be late.
        """
        whole = [records[m.worker.worker_id] for m in group.members if m.whole and present(m.worker)]
        held = [v for record in whole if (r := record.reports.get(group.group)) for v in r.newest_held]
        found: list[Worker] = []
        waiting = self._waiting[group.group]
        for worker_id, back in sorted(waiting.items()):
            outside = group.member(worker_id) is None and present(back.worker)
            if outside and any(record.heard_at <= back.since for record in whole):
                continue
            del waiting[worker_id]
            wanted = (v for v in back.held if v.store not in floors or v.version.version >= floors[v.store].version)
            if outside and any(not _covered(version, held) for version in wanted):
                found.append(back.worker)
                self._sources.setdefault(group.group, set()).add(worker_id)
        if not waiting:
            del self._waiting[group.group]
        return found

    def joined(self, group: GroupId) -> frozenset[str]:
        """Workers that have joined the group as sources. A restarted manager has forgotten it."""
        return frozenset(self._sources.get(group, ()))

    def take_superfluous(
        self, group: ReplicaGroup, records: Mapping[str, WorkerRecord], draining: Collection[str]
    ) -> set[str]:
        """Members beyond the chain's length, once every member is whole under the present epoch.

        Sources first; but one may have become the owner, and then the end of the chain goes. Draining workers do not
        count: what they have needs another place.
        """
        joined = self._sources.get(group.group, set())
        if not joined or not all(_whole_now(group, records.get(m.worker.worker_id)) for m in group.members):
            return set()
        del self._sources[group.group]
        staying = [m for m in group.members if m.worker.worker_id not in draining]
        excess = len(staying) - group.settings.replication_factor - 1
        secondaries = [m.worker.worker_id for m in staying if m is not group.members[0]]
        sources_last = sorted(secondaries, key=lambda worker_id: worker_id in joined)  # stable
        return set(sources_last[-excess:]) if excess > 0 else set()


def _covered(version: StoreVersion, held: Iterable[StoreVersion]) -> bool:
    """A member has this version or a later one of the store."""
    return any(v == version or (v.store == version.store and v.version.version > version.version.version) for v in held)


def _whole_now(group: ReplicaGroup, record: WorkerRecord | None) -> bool:
    report = record.reports.get(group.group) if record is not None else None
    return report is not None and report.whole and report.epoch == group.epoch
