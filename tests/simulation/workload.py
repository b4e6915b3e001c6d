"""Executors of a simulated query: batches on the owner or as guests, retries, snapshots, floors, readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rhino_core.ids import FileEntry, FileKind, StoreId, StoreVersion, Version
from tests.simulation.checkers import Checkers
from tests.simulation.disk import Files
from tests.simulation.facts import require
from tests.simulation.preparing import Preparing
from tests.simulation.sidecar import ZIP_COMMIT_S
from tests.simulation.variety import FAMILIES
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.copies.preparing import PrepareState

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
    snapshot: int = 0  # number of the version with `files`

    @property
    def logged(self) -> Version | None:
        return self.history[-1] if self.history else None


def lineage_on(history: Sequence[Version], files: Files) -> tuple[Version, ...]:
    """As Spark writes it after loading the newest version: since the newest snapshot that is there."""
    for index in range(len(history) - 1, -1, -1):
        zip_ = files.get(f"{history[index]}.zip")
        if zip_ is not None and all(name in files for name in zip_.references):
            return tuple(history[index:])
    return tuple(history)


class Workload:
    """One query. `pause_s`: between its batches."""

    def __init__(self, cluster: Cluster, stores: Iterable[StoreId], pause_s: float = PAUSE_S) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._checkers = cluster.checkers
        self.stores = [Store(store) for store in stores]
        self._pause_s = pause_s
        self._stopped = self._ended = False
        self._strict_from: float | None = None
        self._logged_then: dict[StoreId, int] = {}

    @property
    def job(self) -> str:
        """Empty if there are no stores."""
        return next((store.id.job for store in self.stores), "")

    def check_with(self, checkers: Checkers) -> None:
        self._checkers = checkers

    def start(self) -> None:
        for store in self.stores:
            self._world.after(START_S + self._world.delay(), lambda s=store: self._next_batch(s))  # type: ignore[misc]

    def slow_down(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def stop(self) -> None:
        """No further batches; those that run may yet be logged."""
        self._stopped = True

    def end(self) -> None:
        """The driver is gone: nothing is logged any more."""
        self._stopped = self._ended = True

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
        attempt = store.attempts
        writer = self._place(store)
        if writer is None:
            self._again(store, attempt)
            return
        self._world.after(ATTEMPT_S, lambda: self._again(store, attempt))
        self._prepare(store, writer, lambda state: self._attempt(store, writer, attempt, state))
        if self._world.chance(ZOMBIE):
            self._write_as_zombie(store, attempt)

    def _attempt(self, store: Store, writer: Sidecar, attempt: int, state: PrepareState) -> None:
        """The answer to the attempt's Prepare. After LOST an operator takes the query back."""
        if store.attempts != attempt:
            return  # Spark has given it up
        if state is not PrepareState.READY:
            if state is PrepareState.LOST:
                self.rewind(store, 1)
            self._again(store, attempt)
            return
        self._write(store, writer, f"x{attempt}", attempt, lineage_on(store.history, writer.disk.files[store.id]))
        if self._world.chance(SPECULATIVE):
            other = self._place(store)
            if other is not None and other is not writer:
                self._prepare_and_write(store, other, f"s{attempt}", attempt)

    def _prepare_and_write(
        self, store: Store, writer: Sidecar, checkpoint: str, attempt: int, late_s: float = 0.0
    ) -> None:
        """A further attempt at the version after the one that is logged now."""
        history = tuple(store.history)

        def write(state: PrepareState) -> None:
            if state is PrepareState.READY:
                lineage = lineage_on(history, writer.disk.files[store.id])
                writer.later(late_s, lambda: self._write(store, writer, checkpoint, attempt, lineage))

        self._prepare(store, writer, write)

    def rewind(self, store: Store, batches: int) -> None:
        """`rhino rewind`: the query goes on from an older version. What comes behind it stays where it is."""
        if not 0 < batches < len(store.history):
            return
        self._world.say(f"{store.id} is taken back from {store.history[-1]} to {store.history[-1 - batches]}")
        del store.history[-batches:]
        store.files, store.snapshot = (), 0
        self._again(store, store.attempts)

    def _write(
        self, store: Store, writer: Sidecar, checkpoint: str, attempt: int, lineage: tuple[Version, ...]
    ) -> None:
        """Commits the version after the last one of `lineage`, which ends with the loaded version."""
        version = Version(lineage[-1].version + 1 if lineage else 1, checkpoint)
        crc = self._world.random.getrandbits(32)
        entry = FileEntry(store.id, f"{version}.changelog", 10, crc, lineage=lineage, written_by=writer.name)
        forced = version.version == 1 and store.id.store == FAMILIES
        if forced:
            entry = replace(entry, references=(f"{version}.zip",))  # as a sidecar that has the snapshot says of it
        commit = self._commit_with_snapshot if forced else self._commit
        commit(store, writer, entry, attempt)

    def _commit_with_snapshot(self, store: Store, writer: Sidecar, entry: FileEntry, attempt: int) -> None:
        """Version 1 of a store with column families: its snapshot first, for which the task waits."""
        files = self._add_files(store, writer, number=1)
        if files is None:
            self._again(store, attempt)
            return
        (name,) = entry.references
        zip_ = FileEntry(store.id, name, 12, entry.crc32c ^ 1, references=files, written_by=writer.name)

        def done(answer: ev.CompleteCommit) -> None:
            if answer.error is None and writer.up:
                self._commit(store, writer, entry, attempt)
            else:
                self._again(store, attempt)

        writer.commit(next(self._world.numbers), zip_, done)

    def _write_as_zombie(self, store: Store, attempt: int) -> None:
        """An executor that Spark has given up, on a worker that has loaded the state, goes on and commits later."""
        up = [sidecar for sidecar in self._cluster.sidecars.values() if sidecar.up]
        if up:
            late_s = self._world.random.uniform(0.0, 2.0)
            self._prepare_and_write(store, self._world.random.choice(up), f"z{attempt}", NOBODY, late_s)

    def _place(self, store: Store) -> Sidecar | None:
        up = [sidecar for sidecar in self._cluster.sidecars.values() if sidecar.up]
        if self._cluster.executors is not None:
            return self._cluster.executors.place(store.id, up)
        group = self._cluster.manager.core.groups.get(store.id.group)
        owners = [sidecar for sidecar in up if group is not None and sidecar.name == group.owner.worker_id]
        choice = owners if owners and self._world.chance(0.7) else up
        return self._world.random.choice(choice) if choice else None

    def _prepare(self, store: Store, writer: Sidecar, then: Callable[[PrepareState], None]) -> None:
        """The logged version is made to be here, and pinned while the attempt lasts."""
        if store.logged is None:
            then(PrepareState.READY)
            return
        logged, began = StoreVersion(store.id, store.logged), self._world.now

        def done(state: PrepareState, pin: int) -> None:
            if self._strict_from is not None and began > self._strict_from and logged.version in store.history:
                require(state is PrepareState.READY, f"{logged} on {writer.name} in peace: {state.value}")
            if state is PrepareState.READY:
                writer.later(self._world.random.choice([0.3, ATTEMPT_S]), lambda: writer.pins.pop(pin, None))
            then(state)

        Preparing(writer, logged, done)

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
        begun = self._world.now - (ZIP_COMMIT_S if entry.kind is FileKind.SNAPSHOT else ATTEMPT_S)
        above = entry.version.version >= self._checkers.floors.get(entry.store, 0)
        if above and self._strict_from is not None and begun > self._strict_from:
            require(answer.error is None, f"commit of {entry.store}/{entry.name} in peace: {answer.error}")

    def _again(self, store: Store, attempt: int) -> None:
        if store.attempts == attempt:
            store.attempts += 1
            self._world.after(self._pause_s + self._world.delay(), lambda: self._next_batch(store))

    def _log(self, store: Store, version: StoreVersion, writer: Sidecar) -> None:
        """The batch is in Spark's commit log: the only thing later batches build on."""
        if self._ended:
            return
        self._world.say(f"logged {version} by {writer.name}")
        store.history.append(version.version)
        self._checkers.logged(store.id, writer.name)
        self._cluster.steady.logged(store.id.group, writer.name, self._world.now)
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
        fresh = self._add_files(store, writer, number=version.version.version)
        if fresh is None:
            return
        gap_s = self._world.random.uniform(0.0, 0.6)
        writer.later(gap_s, lambda: self._commit_zip(store, writer, name, (*kept, *fresh), fresh))

    def _add_files(self, store: Store, writer: Sidecar, number: int) -> tuple[str, ...] | None:
        """Names of two new data files of version `number`; None when the disk is full or the worker gone."""
        fresh = tuple(f"SSTs/{number:06d}-{self._world.random.getrandbits(40)}.sst" for _ in range(2))
        for sst in fresh:
            entry = FileEntry(store.id, sst, 60, self._world.random.getrandbits(32), written_by=writer.name)
            if not writer.up or not writer.disk.takes_files:
                return None
            writer.store(entry)
            writer.handle(ev.FileStored(entry, written=True))
        return fresh if writer.up else None

    def _commit_zip(
        self, store: Store, writer: Sidecar, name: str, references: tuple[str, ...], fresh: tuple[str, ...]
    ) -> None:
        absent = [sst for sst in references if sst not in writer.disk.files[store.id]]
        forgotten = store.id.job in writer.disk.fences
        taken = [sst for sst in absent if sst in fresh and (store.id, sst) not in writer.damaged and not forgotten]
        require(not taken, f"{writer.name}: {taken} of {store.id} deleted before the zip came that names them")
        if absent:
            return  # a sidecar refuses such a zip
        crc = self._world.random.getrandbits(32)
        zip_ = FileEntry(store.id, name, 12, crc, references=references, written_by=writer.name)

        def done(answer: ev.CompleteCommit) -> None:
            self._must_not_fail(zip_, answer)
            if answer.error is None and zip_.version is not None and zip_.version.version > store.snapshot:
                store.files, store.snapshot = references, zip_.version.version

        writer.commit(next(self._world.numbers), zip_, done)
