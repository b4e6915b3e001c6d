"""What a query writes: versions of its stores as changelogs and snapshots, a log of batches, and rewinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from handover_manager.archive.events import BatchKnown
from rhino_archive.manifest import digest_of
from rhino_core.ids import FileEntry, GroupId, StoreId, StoreVersion, Version
from tests.simulation.archive.world import World

JOB = "job"
SNAPSHOT_EVERY = 4  # versions
PARTITIONS = 3


@dataclass(frozen=True)
class _Chain:
    """Behind a version of a store: the versions since the last snapshot and with it, and that snapshot's data files."""

    lineage: tuple[Version, ...] = ()
    data_files: tuple[FileEntry, ...] = ()


class Query:
    """`name`: of the cluster that runs it; ids begin with it. Versions of all histories stay in `logged`, by digest."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._histories = 0
        self._floor = 0
        self._random = world.random
        names = ("default", "right") if world.chance(0.3) else ("default",)
        self.stores = [StoreId(JOB, 0, partition, store) for partition in range(PARTITIONS) for store in names]
        self._chains: dict[StoreVersion, _Chain] = {}
        self._contents: dict[tuple[StoreId, str], bytes] = {}
        self.log: list[BatchKnown] = []  # of the present history
        self.logged: dict[str, BatchKnown] = {}

    @property
    def groups(self) -> list[GroupId]:
        return sorted({store.group for store in self.stores})

    def batch(self) -> tuple[BatchKnown, list[tuple[FileEntry, bytes]]]:
        """Logs the next batch. Returns its new files, too."""
        number = len(self.log) + 1
        # Ids of a history have its number, so that those of another one differ.
        version = Version(number, f"{self._name}{self._histories}-{number}")
        files = [file for store in self.stores for file in self._written(store, version)]
        versions = tuple(StoreVersion(store, version) for store in self.stores)
        known = BatchKnown(JOB, number - 1, versions, number, "q", "/checkpoint")
        self.log.append(known)
        self.logged[digest_of(versions)] = known
        return known, files

    def rewind(self, batches: int) -> bool:
        """Forgets the last batches, unless retention has deleted what is behind them. Their files stay."""
        if len(self.log) - batches < max(1, self._floor):
            return False
        del self.log[-batches:]
        self._histories += 1
        return True

    def floor(self, store: StoreId) -> Version:
        """The oldest version that a rewind may need."""
        batch = self.log[max(0, len(self.log) - 3)]
        self._floor = max(self._floor, batch.batch_id + 1)
        return next(version.version for version in batch.versions if version.store == store)

    def _written(self, store: StoreId, version: Version) -> Iterator[tuple[FileEntry, bytes]]:
        before = _Chain()
        if self.log:
            former = next(one for one in self.log[-1].versions if one.store == store)
            before = self._chains[former]
        yield self._file(store, f"{version}.changelog", self._bytes(), lineage=before.lineage)
        chain = _Chain((*before.lineage, version), before.data_files)
        if version.version % SNAPSHOT_EVERY == 0:
            new = self._data_file(store, version, before.data_files)
            yield new
            data_files = (*before.data_files[-1:], new[0])
            yield self._file(store, f"{version}.zip", self._bytes(), references=tuple(file.name for file in data_files))
            chain = _Chain((version,), data_files)
        self._chains[StoreVersion(store, version)] = chain

    def _data_file(self, store: StoreId, version: Version, others: tuple[FileEntry, ...]) -> tuple[FileEntry, bytes]:
        """It may have the same bytes as a former one."""
        name = f"SSTs/{version.version:06d}-{version.checkpoint_id}.sst"
        if others and self._world.chance(0.2):
            twin = others[-1]
            return self._file(store, name, self._contents[store, twin.name], same_as=twin.content)
        return self._file(store, name, self._bytes())

    def _bytes(self) -> bytes:
        return self._random.randbytes(self._random.randrange(50, 400))

    def _file(
        self,
        store: StoreId,
        name: str,
        data: bytes,
        *,
        lineage: tuple[Version, ...] = (),
        references: tuple[str, ...] = (),
        same_as: str = "",
    ) -> tuple[FileEntry, bytes]:
        self._contents[store, name] = data
        entry = FileEntry(store, name, len(data), crc32c(data), lineage, references, same_as=same_as)
        return entry, data
