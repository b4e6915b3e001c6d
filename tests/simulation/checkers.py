"""The invariants of ARCHITECTURE.md over a simulated cluster; they look at disks and at the manager's word only."""

from __future__ import annotations

from collections.abc import Iterable

from rhino.ids import Epoch, FileEntry, GroupId, ReplicaGroup, StoreId, StoreVersion, parse_name
from tests.simulation.sidecar import Disk


class Violation(AssertionError):
    """An invariant does not hold."""


def require(condition: bool, text: str) -> None:
    if not condition:
        raise Violation(text)


class Checkers:
    """`acknowledged`: versions whose commit has returned, with the copies it was promised."""

    def __init__(self, min_copies: int) -> None:
        self._min_copies = min_copies
        self._checksums: dict[tuple[StoreId, str], int] = {}
        self._issued: dict[tuple[GroupId, Epoch], ReplicaGroup] = {}
        self._newest: dict[GroupId, Epoch] = {}
        self.acknowledged: dict[StoreVersion, int] = {}
        self.floors: dict[StoreId, int] = {}

    def stored(self, entry: FileEntry) -> None:
        """2. Names: (store, name) has one checksum for ever."""
        known = self._checksums.setdefault((entry.store, entry.name), entry.crc32c)
        require(known == entry.crc32c, f"{entry.store}/{entry.name} has two checksums")

    def visible(self, disk: Disk, store: StoreId, name: str) -> None:
        """3. A visible snapshot has every file it names."""
        entry = disk.files.get((store, name))
        require(entry is not None, f"{store}/{name} is visible but not here")
        assert entry is not None
        absent = [r for r in entry.references if (store, r) not in disk.files]
        require(not absent, f"snapshot {store}/{name} is visible without {absent}")

    def epoch_persisted(self, disk: Disk, group: GroupId, epoch: Epoch) -> None:
        """9. Epochs are monotone on every disk."""
        before = disk.epochs.get(group)
        require(before is None or before < epoch, f"{group}: epoch {epoch} persisted after {before}")

    def group_issued(self, group: ReplicaGroup) -> None:
        """9. Epochs are monotone and never issued twice, also over restarts of the manager."""
        newest = self._newest.get(group.group)
        require(newest is None or newest < group.epoch, f"{group.group}: epoch {group.epoch} issued after {newest}")
        self._newest[group.group] = group.epoch
        self._issued[group.group, group.epoch] = group

    def committed(self, version: StoreVersion, copies: int, epoch: Epoch, disks: dict[str, Disk]) -> None:
        """1. A commit returns only when as many members hold the version as it says, and as the group's epoch asks."""
        group = self._issued[version.store.group, epoch]
        held = sum(disks[m.worker.worker_id].holds(version) for m in group.members)
        require(held >= copies, f"{version}: {copies} copies promised, {held} members hold it")
        asked = max(1, min(self._min_copies, sum(m.whole for m in group.members)))
        require(copies >= asked, f"{version}: {copies} copies under epoch {epoch}, which asks for {asked}")
        self.acknowledged[version] = max(copies, self.acknowledged.get(version, 0))

    def raise_floor(self, store: StoreId, version: int) -> None:
        self.floors[store] = max(version, self.floors.get(store, 0))

    def wanted(self) -> list[StoreVersion]:
        """Acknowledged versions at or above their floor."""
        return [v for v in self.acknowledged if v.version.version >= self.floors.get(v.store, 0)]

    def durable(self, disks: Iterable[Disk]) -> None:
        """1 and 8. Every acknowledged version at or above the floor is held by some disk, down or up."""
        disks = list(disks)
        for version in self.wanted():
            require(any(disk.holds(version) for disk in disks), f"{version} was acknowledged and nobody holds it")

    def converged(self, groups: Iterable[ReplicaGroup], disks: dict[str, Disk], factor: int) -> None:
        """3 and 11. After faults have healed every group is complete, whole, and its members hold the same versions."""
        for group in groups:
            text = f"{group.group} at {group.epoch}: {[(m.worker.worker_id, m.whole) for m in group.members]}"
            require(len(group.members) > factor, f"{text}: too few members")
            require(all(m.whole for m in group.members), f"{text}: not whole")
            for version in self.wanted():
                if version.store.group == group.group:
                    lacking = [
                        m.worker.worker_id for m in group.members if not disks[m.worker.worker_id].holds(version)
                    ]
                    require(not lacking, f"{text}: {version} is not held by {lacking}")

    def snapshots_whole(self, disks: Iterable[Disk]) -> None:
        """3. Also later on: no visible snapshot has lost a file."""
        for disk in disks:
            for store, name in disk.visible:
                if parse_name(name).kind.versioned:
                    self.visible(disk, store, name)
