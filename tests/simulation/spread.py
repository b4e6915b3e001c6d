"""The cluster under block-centric placement: what must hold when no disk but the writer's has a whole version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rhino_core.ids import FileEntry, GroupId, JobSettings, Placement, ReplicaGroup, StoreId, StoreVersion
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import Cluster
from tests.simulation.disk import Disk, opens
from tests.simulation.facts import Incarnation, require
from tests.simulation.variety import Variety
from worker_runtime.protocol import events as ev

WORKERS = 4


class SpreadCheckers(Checkers):
    """A version is safe when it opens from the files of all disks but any one."""

    def __init__(self, cluster: Cluster, memory_limit_bytes: int) -> None:
        super().__init__(memory_limit_bytes)
        self._cluster = cluster

    def acknowledged(self, ack: ev.SendAck, sender: Incarnation, disk: Disk) -> None:
        """No worker acknowledges a block that is not on its disk, or under an older epoch than it has persisted."""
        if ack.member.worker_id == sender[0]:
            highest = disk.epochs.get(ack.store.group)
            text = f"{sender[0]} acknowledges {ack.store}/{ack.name} under {ack.epoch}"
            require(highest is not None and ack.epoch >= highest, f"{text} having persisted {highest}")
            require(ack.name in disk.files[ack.store], f"{text}, which is not on its disk")

    def committed(self, entry: FileEntry, answer: ev.CompleteCommit, writer: Incarnation, disk: Disk) -> bool:
        """Every block of the version has as many copies as the commit reports, unless a disk has been lost of which the
        manager, when it issued the epoch, had not heard."""
        assert entry.version is not None
        version = StoreVersion(entry.store, entry.version)
        self.not_passed(version, answer.epoch, disk)
        disks = {side.incarnation: side.disk for side in self._cluster.sidecars.values()}
        members = self._issued[version.store.group, answer.epoch].members
        if answer.copies > 1 and all((m.worker.worker_id, m.worker.incarnation) in disks for m in members):
            for incarnation in disks:
                without = [other for key, other in disks.items() if key != incarnation]
                require(
                    _opens(without, version),
                    f"{version} under {answer.epoch}: 2 copies, but only with {incarnation[0]}",
                )
        self._promised(version, set())
        return True

    def may_lose(self, incarnation: Incarnation, disks: Mapping[Incarnation, Disk]) -> bool:
        return all(_opens([d for key, d in disks.items() if key != incarnation], version) for version in self.wanted())

    def durable(self, disks: Iterable[Disk], store: StoreId | None = None) -> None:
        disks = list(disks)
        for version in self.wanted(store):
            require(_opens(disks, version), f"{version} was committed and its blocks are not all there")

    def converged(
        self,
        groups: Iterable[ReplicaGroup],
        disks: Mapping[str, Disk],
        factor: int,
        may_stay: Mapping[GroupId, set[str]],
    ) -> None:
        """Once faults have ended every group has all workers, whole, and a copy of every block beside any disk."""
        for group in groups:
            text = f"{group.group} at {group.epoch}: {[(m.worker.worker_id, m.whole) for m in group.members]}"
            require(len(group.members) == factor + 1 and all(m.whole for m in group.members), text)
        for version in self.wanted():
            for name in disks:
                without = [disk for other, disk in disks.items() if other != name]
                require(_opens(without, version), f"{version} opens with the blocks of {name} only")

    def nothing_in_excess(self, worker: str, disk: Disk, store: StoreId) -> None:
        """Nothing is collected."""

    def no_copies_outside(self, group: ReplicaGroup, disks: Mapping[str, Disk]) -> None:
        """All workers are members."""


class SpreadCluster(Cluster):
    """All workers are members of all groups."""

    def __init__(self, seed: int) -> None:
        variety = Variety(JobSettings(WORKERS - 1, placement=Placement.BLOCK))
        super().__init__(seed, workers=WORKERS, factor=WORKERS - 1, variety=variety)
        self.checkers: Checkers = SpreadCheckers(self, self.limit_bytes)
        self.workload.check_with(self.checkers)
        self.faults.no_damage()


def _opens(disks: Iterable[Disk], version: StoreVersion) -> bool:
    """From the files of these disks together."""
    files = {name: entry for disk in disks for name, entry in disk.files.get(version.store, {}).items()}
    return opens(files, version.version)
