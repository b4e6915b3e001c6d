"""A simulated cluster with a workload like Spark's, faults from a seed, and a healing phase at the end."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from unittest.mock import patch

from rhino.ids import FileEntry, JobSettings, Lane, StoreId, StoreVersion, Version
from tests.simulation.checkers import Checkers
from tests.simulation.manager import Manager
from tests.simulation.sidecar import Disk, Sidecar
from tests.simulation.world import Faults, Link, World
from worker_runtime.core import events as ev
from worker_runtime.core import membership

FAULTY_S = 12.0
HEALING_S = 16.0
REPAIR_S = 2.0  # scaled down like everything else
RETAINED = 6  # versions behind the newest that may still be loaded
REQUESTS = itertools.count(1)


@dataclass
class Store:
    """One store as Spark sees it: the logged version, the lineage since its newest snapshot, its data files."""

    id: StoreId
    logged: Version | None = None
    lineage: tuple[Version, ...] = ()
    history: list[Version] = field(default_factory=list)
    files: tuple[str, ...] = ()
    attempts: int = 0


class Cluster:
    def __init__(self, seed: int, *, workers: int = 3, factor: int = 1) -> None:
        self.factor = factor
        self.settings = JobSettings(factor)
        self.world = World(seed)
        self.checkers = Checkers(self.settings.copies)
        self._links: dict[tuple[str, str, Lane], Link] = {}
        self.sidecars = {name: Sidecar(self, name) for name in "abcdef"[:workers]}
        self.manager = Manager(self, self.settings)
        self.stores = [Store(StoreId("job", 0, partition, "default")) for partition in range(2)]

    # ------------------------------------------------------------ links

    def link(self, sender: str, receiver: str, lane: Lane) -> Link | None:
        found = self._links.get((sender, receiver, lane))
        return found if found is not None and found.open else None

    def open_link(self, sender: str, receiver: str, lane: Lane) -> None:
        self._links[sender, receiver, lane] = Link(self.world)

    def break_link(self, sender: str, receiver: str, lane: Lane) -> None:
        link = self.link(sender, receiver, lane)
        if link is None:
            return
        link.open = False
        upstream = self.sidecars[sender]
        if upstream.up:
            upstream.handle(ev.PeerDisconnected(receiver, lane))
            if upstream.up:
                upstream._connect(receiver, lane)

    def break_links(self, name: str) -> None:
        """Everything to and from a worker that has just died."""
        for sender, receiver, lane in list(self._links):
            if name in (sender, receiver):
                self.break_link(sender, receiver, lane)

    # ------------------------------------------------------------ run

    def run(self) -> None:
        """Faults and workload for FAULTY_S, then healing; raises Violation. Simulated seconds."""
        with patch.object(membership, "REPAIR_S", REPAIR_S):
            self._run()

    def _run(self) -> None:
        self.manager.start()
        for sidecar in self.sidecars.values():
            sidecar.start()
        for store in self.stores:
            self.world.after(1.0 + self.world.delay(), lambda s=store: self._next_batch(s))  # type: ignore[misc]
        self.world.after(2.0, self._fault)
        self.world.run_until(FAULTY_S, lambda: None)
        self.world.faults = Faults.none()
        for sidecar in self.sidecars.values():
            if not sidecar.up:
                sidecar.start()
        if not self.manager.up:
            self.manager.start()
        self.world.run_until(FAULTY_S + HEALING_S, lambda: None)
        disks = self._disks()
        self.checkers.durable(disks.values())
        self.checkers.snapshots_whole(disks.values())
        self.checkers.converged(self.manager.core.groups.values(), disks, self.factor)
        for store in self.stores:
            if store.logged is None or store.logged.version < 5:
                raise AssertionError(f"{store.id}: only {store.logged} logged; the simulation made no progress")

    # ------------------------------------------------------------ workload

    @property
    def _ended(self) -> bool:
        return self.world.now > FAULTY_S + HEALING_S / 2

    def _next_batch(self, store: Store) -> None:
        """Spark runs the task somewhere: mostly on the owner, sometimes elsewhere; it must hold what it loads."""
        if self._ended:
            return
        up = [s for s in self.sidecars.values() if s.up]
        logged = StoreVersion(store.id, store.logged) if store.logged else None
        holders = [s for s in up if logged is None or s.disk.holds(logged)]
        if not holders:
            self._again(store)
            return
        group = self.manager.core.groups.get(store.id.group)
        owners = [s for s in up if group is not None and s.name == group.owner.worker_id]
        writer = self.world.random.choice(owners if owners and self.world.chance(0.8) else up)
        if writer not in holders:  # Prepare: fetched from whoever holds it
            writer._pull(store.id.group, holders[0])
        store.attempts += 1
        next_version = Version((store.logged.version if store.logged else 0) + 1, f"x{store.attempts}")
        entry = self._changelog(store, next_version, writer.name)
        attempt = store.attempts
        self.world.after(6.0, lambda: self._again(store) if store.attempts == attempt else None)

        def done(result: ev.CompleteCommit) -> None:
            if result.error is None:
                version = StoreVersion(store.id, next_version)
                self.checkers.committed(version, result.copies, result.epoch, self._disks())
                if store.attempts == attempt:
                    self._log(store, version, writer)
            if store.attempts == attempt:
                self._again(store)

        writer.commit(next(REQUESTS), entry, done)

    def _again(self, store: Store) -> None:
        store.attempts += 1
        self.world.after(0.05 + self.world.delay(), lambda: self._next_batch(store))

    def _disks(self) -> dict[str, Disk]:
        return {name: sidecar.disk for name, sidecar in self.sidecars.items()}

    def _changelog(self, store: Store, version: Version, writer: str) -> FileEntry:
        crc = self.world.random.getrandbits(32)
        return FileEntry(store.id, f"{version}.changelog", 10, crc, lineage=store.lineage, written_by=writer)

    def _log(self, store: Store, version: StoreVersion, writer: Sidecar) -> None:
        """The batch is in Spark's commit log: the only thing later batches build on."""
        self.world.say(f"logged {version} by {writer.name}")
        store.logged = version.version
        store.lineage = (*store.lineage, version.version)
        store.history.append(version.version)
        floor = None
        if len(store.history) > RETAINED:
            floor = StoreVersion(store.id, store.history[-RETAINED - 1])
            self.checkers.raise_floor(store.id, floor.version.version)
        self.manager.published(version, floor)
        if floor is not None:
            for sidecar in self.sidecars.values():
                if sidecar.up:
                    sidecar.collect(floor)
        if version.version.version % 4 == 0:
            self.world.after(self.world.delay(), lambda: self._snapshot(store, version, writer))

    def _snapshot(self, store: Store, version: StoreVersion, writer: Sidecar) -> None:
        """Maintenance uploads a snapshot: some files shared with the one before, then the zip."""
        if not writer.up:
            return
        kept = [name for name in store.files if (store.id, name) in writer.disk.files][-2:]
        fresh = [f"SSTs/{version.version.version:06d}-{self.world.random.getrandbits(40)}.sst" for _ in range(2)]
        for name in fresh:
            entry = FileEntry(store.id, name, 100, self.world.random.getrandbits(32), written_by=writer.name)
            writer.store(entry)
            writer.handle(ev.FileStored(entry, written=True))
        references = (*kept, *fresh)
        crc = self.world.random.getrandbits(32)
        name = f"{version.version}.zip"
        if (store.id, name) in writer.disk.files:
            return
        entry = FileEntry(store.id, name, 5, crc, references=references, written_by=writer.name)

        def done(result: ev.CompleteCommit) -> None:
            if result.error is None:
                self.checkers.committed(version, result.copies, result.epoch, self._disks())
                if version.version in store.lineage:
                    # Spark truncates the lineage to the snapshot: later versions depend on it.
                    store.lineage = store.lineage[store.lineage.index(version.version) :]
                    store.files = references

        writer.commit(next(REQUESTS), entry, done)

    # ------------------------------------------------------------ faults

    def _fault(self) -> None:
        if self.world.now >= FAULTY_S:
            return
        kind = self.world.random.choices(["sidecar", "manager", "link", "disk", "nothing"], weights=[4, 1, 4, 2, 2])[0]
        if kind == "sidecar":
            self._crash_sidecar(lose_disk=False)
        elif kind == "disk" and self._repaired():
            self._crash_sidecar(lose_disk=True)
        elif kind == "manager" and self.manager.up:
            self.manager.crash()
            self.world.after(self.world.random.uniform(0.1, 2.0), self._start_manager)
        elif kind == "link" and self._links:
            self.break_link(*self.world.random.choice(sorted(self._links, key=str)))
        self.world.after(self.world.random.uniform(0.2, 1.5), self._fault)

    def _start_manager(self) -> None:
        if not self.manager.up:
            self.manager.start()

    def _crash_sidecar(self, *, lose_disk: bool) -> None:
        up = [s for s in self.sidecars.values() if s.up]
        if len(up) < len(self.sidecars):  # one at a time: the promise is about min_copies - 1 losses between repairs
            return
        victim = self.world.random.choice(up)
        process = victim.process
        victim.crash(lose_disk=lose_disk)
        if lose_disk:
            self.checkers.durable(self._disks().values())
        self.world.after(self.world.delay(), lambda: self.manager.stream_broken(victim, process))
        self.world.after(self.world.random.uniform(0.1, 3.0), lambda: victim.start() if not victim.up else None)

    def _repaired(self) -> bool:
        """Every version that counts has min_copies copies on disk now, so that one disk may be lost."""
        disks = list(self._disks().values())
        return all(s.up for s in self.sidecars.values()) and all(
            sum(disk.holds(v) for disk in disks) >= 2 for v in self.checkers.wanted()
        )
