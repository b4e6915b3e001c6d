"""Executors of a simulated query: batches on the owner or as guests, retries, snapshots, floors, readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rhino.ids import FileEntry, StoreId, StoreVersion, Version
from tests.simulation.checkers import Checkers, require
from tests.simulation.disk import Files
from tests.simulation.fetching import fetch_blocks
from worker_runtime.core import events as ev

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.sidecar import Sidecar

START_S = 1.0
PAUSE_S = 0.15  # between batches
ATTEMPT_S = 4.0  # after which Spark runs the task again, elsewhere perhaps
SNAPSHOT_EVERY = 3
SPECULATIVE, ZOMBIE, LATE_SNAPSHOT = 0.05, 0.05, 0.3
NOBODY = -1  # no attempt has this number
RETAINED = 4  # versions behind the newest that may still be loaded


@dataclass
class Store:
    """One store as Spark sees it: all logged versions, the data files of the newest snapshot."""

    id: StoreId
    history: list[Version] = field(default_factory=list)
    files: tuple[str, ...] = ()
    attempts: int = 0

    @property
    def logged(self) -> Version | None:
        return self.history[-1] if self.history else None

    def lineage_on(self, files: Files) -> tuple[Version, ...]:
        """As Spark writes it after loading the logged version: since the newest snapshot that is there."""
        for index in range(len(self.history) - 1, -1, -1):
            zip_ = files.get(f"{self.history[index]}.zip")
            if zip_ is not None and all(name in files for name in zip_.references):
                return tuple(self.history[index:])
        return tuple(self.history)


class Workload:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._checkers = cluster.checkers
        # The first two are stores of one partition: operators of one stage.
        self.stores = [Store(StoreId("job", operator, 0, "default")) for operator in range(2)]
        self._stopped = False
        self._strict_from: float | None = None
        self._logged_then: dict[StoreId, int] = {}

    def check_with(self, checkers: Checkers) -> None:
        self._checkers = checkers

    def start(self) -> None:
        for store in self.stores:
            self._world.after(START_S + self._world.delay(), lambda s=store: self._next_batch(s))  # type: ignore[misc]

    def stop(self) -> None:
        self._stopped = True

    def nothing_may_fail(self) -> None:
        self._strict_from = self._world.now
        self._logged_then = {store.id: len(store.history) for store in self.stores}

    def check_progress(self) -> None:
        """6. Liveness: since `nothing_may_fail` every store went on."""
        for store in self.stores:
            more = len(store.history) - self._logged_then[store.id]
            require(
                more > 0, f"{store.id}: nothing was logged after the faults had ended; the newest is {store.logged}"
            )

    # ------------------------------------------------------------ batches

    def _next_batch(self, store: Store) -> None:
        """Spark runs the task somewhere: mostly on the owner, sometimes elsewhere, sometimes twice at once.

        It must hold what it loads. Only the attempt that answers first is logged.
        """
        store.attempts += 1
        if self._stopped:
            return
        writer = self._place(store)
        if writer is None or not self._prepare(store, writer):
            self._again(store, store.attempts)
            return
        attempt = store.attempts
        self._world.after(ATTEMPT_S, lambda: self._again(store, attempt))
        self._write(store, writer, f"x{attempt}", attempt)
        if self._world.chance(SPECULATIVE):
            other = self._place(store)
            if other is not None and other is not writer and self._prepare(store, other):
                self._write(store, other, f"s{attempt}", attempt)
        if self._world.chance(ZOMBIE):
            self._write_as_zombie(store, attempt)

    def _write(self, store: Store, writer: Sidecar, checkpoint: str, attempt: int, *, late_s: float = 0.0) -> None:
        """Commits the version after the logged one, on what is loaded now; at once, or when nobody expects it."""
        number = store.logged.version + 1 if store.logged else 1
        version = Version(number, checkpoint)
        crc = self._world.random.getrandbits(32)
        lineage = store.lineage_on(writer.disk.files[store.id])
        entry = FileEntry(store.id, f"{version}.changelog", 10, crc, lineage=lineage, written_by=writer.name)
        if late_s:
            writer.later(late_s, lambda: self._commit(store, writer, entry, attempt))
        else:
            self._commit(store, writer, entry, attempt)

    def _write_as_zombie(self, store: Store, attempt: int) -> None:
        """An executor that Spark has given up, on a worker that has loaded the state, goes on and commits later."""
        up = [sidecar for sidecar in self._cluster.sidecars.values() if sidecar.up]
        if up and self._prepare(store, writer := self._world.random.choice(up)):
            self._write(store, writer, f"z{attempt}", NOBODY, late_s=self._world.random.uniform(0.0, 2.0))

    def _place(self, store: Store) -> Sidecar | None:
        up = [sidecar for sidecar in self._cluster.sidecars.values() if sidecar.up]
        group = self._cluster.manager.core.groups.get(store.id.group)
        owners = [sidecar for sidecar in up if group is not None and sidecar.name == group.owner.worker_id]
        choice = owners if owners and self._world.chance(0.7) else up
        return self._world.random.choice(choice) if choice else None

    def _prepare(self, store: Store, writer: Sidecar) -> bool:
        """The logged version is here, or fetched from a worker that holds it; pinned while the attempt lasts."""
        if store.logged is None:
            return True
        logged = StoreVersion(store.id, store.logged)
        writer.check_bytes()
        if not writer.up:
            return False
        if self._cluster.spread and not writer.disk.holds(logged):
            if not fetch_blocks(self._cluster, writer, logged):
                return False
        elif not writer.disk.holds(logged):
            others = [
                self._cluster.network.reach(writer.name, name) for name in self._cluster.sidecars if name != writer.name
            ]
            holders = [other for other in others if other is not None and other.disk.holds(logged)]
            if not holders:
                return False
            source = self._world.random.choice(holders)
            closure = source.catalogue.store(store.id).cheapest_closure(store.logged, writer.disk.files[store.id])
            for name in sorted(closure or (), key=_pull_order):
                if not source.readable(store.id, name) or not writer.pull(source.disk.files[store.id][name]):
                    return False
        if not writer.up:
            return False
        require(writer.disk.holds(logged), f"{logged} does not open on {writer.name} after Prepare")
        pin = next(self._world.numbers)
        writer.pins[pin] = logged
        writer.later(self._world.random.choice([0.3, ATTEMPT_S]), lambda: writer.pins.pop(pin, None))
        return True

    def _commit(self, store: Store, writer: Sidecar, entry: FileEntry, attempt: int) -> None:
        assert entry.version is not None
        version = entry.version

        def done(answer: ev.CompleteCommit) -> None:
            self._must_not_fail(entry, answer)
            if store.attempts != attempt:
                return  # another attempt runs: Spark has given this one up
            if answer.error is None:
                self._log(store, StoreVersion(store.id, version), writer)
            self._again(store, attempt)

        request = next(self._world.numbers)
        if self._world.chance(0.1):  # the executor asks again, or nobody waits any more
            writer.later(
                self._world.delay(), lambda: writer.commit(next(self._world.numbers), entry, lambda answer: None)
            )
        if self._world.chance(self._world.faults.abandon_commit):
            writer.later(self._world.delay(), lambda: writer.abandon(request))
        writer.commit(request, entry, done)

    def _must_not_fail(self, entry: FileEntry, answer: ev.CompleteCommit) -> None:
        """But late ones may, of versions that the floor has passed: others may never come to hold them."""
        assert entry.version is not None
        begun = self._world.now - ATTEMPT_S
        above = entry.version.version >= self._checkers.floors.get(entry.store, 0)
        if above and self._strict_from is not None and begun > self._strict_from:
            require(answer.error is None, f"commit of {entry.store}/{entry.name} in peace: {answer.error}")

    def _again(self, store: Store, attempt: int) -> None:
        if store.attempts == attempt:
            store.attempts += 1
            self._world.after(PAUSE_S + self._world.delay(), lambda: self._next_batch(store))

    def _log(self, store: Store, version: StoreVersion, writer: Sidecar) -> None:
        """The batch is in Spark's commit log: the only thing later batches build on."""
        self._world.say(f"logged {version} by {writer.name}")
        store.history.append(version.version)
        self._checkers.logged(store.id.group, writer.name)
        floor = None
        if len(store.history) > RETAINED:
            floor = StoreVersion(store.id, store.history[-RETAINED - 1])
            self._checkers.raise_floor(store.id, floor.version.version)
        self._cluster.manager.published(version, floor)
        if version.version.version % SNAPSHOT_EVERY == 0:
            late_s = self._world.random.uniform(0.3, 2.5) if self._world.chance(LATE_SNAPSHOT) else self._world.delay()
            writer.later(late_s, lambda: self._snapshot(store, version, writer))

    # ------------------------------------------------------------ snapshots

    def _snapshot(self, store: Store, version: StoreVersion, writer: Sidecar) -> None:
        """Maintenance uploads a snapshot: some files shared with the one before, then the zip."""
        here = writer.disk.files[store.id]
        name = f"{version.version}.zip"
        if name in here:
            return
        kept = [shared for shared in store.files if shared in here][-2:]
        fresh = [f"SSTs/{version.version.version:06d}-{self._world.random.getrandbits(40)}.sst" for _ in range(2)]
        for sst in fresh:
            entry = FileEntry(store.id, sst, 60, self._world.random.getrandbits(32), written_by=writer.name)
            if writer.disk.full:
                return
            writer.store(entry)
            writer.handle(ev.FileStored(entry, written=True))
            if not writer.up:
                return
        gap_s = self._world.random.uniform(0.0, 0.6)
        writer.later(gap_s, lambda: self._commit_zip(store, writer, name, (*kept, *fresh), fresh))

    def _commit_zip(
        self, store: Store, writer: Sidecar, name: str, references: tuple[str, ...], fresh: list[str]
    ) -> None:
        absent = [sst for sst in references if sst not in writer.disk.files[store.id]]
        taken = [sst for sst in absent if sst in fresh and (store.id, sst) not in writer.damaged]
        require(not taken, f"{writer.name}: {taken} of {store.id} deleted before the zip came that names them")
        if absent:
            return  # a sidecar refuses such a zip
        crc = self._world.random.getrandbits(32)
        zip_ = FileEntry(store.id, name, 12, crc, references=references, written_by=writer.name)

        def done(answer: ev.CompleteCommit) -> None:
            self._must_not_fail(zip_, answer)
            if answer.error is None:
                store.files = references

        writer.commit(next(self._world.numbers), zip_, done)


def _pull_order(name: str) -> tuple[bool, bool, str]:
    """Data files, zips, changelogs: as in a real Prepare."""
    return name.endswith(".changelog"), name.endswith(".zip"), name
