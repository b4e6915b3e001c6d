"""The invariants of an archive. The watch sees the store, and what the queries have logged; never a machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crc32c import crc32c

from rhino_archive.manifest import BATCHES, ArchivedFile, Manifest, Part, digest_of, manifest_of, pack_name, versions_of
from rhino_core.errors import RhinoError
from rhino_core.ids import GroupId, StoreVersion
from tests.simulation.archive.query import JOB, Query
from tests.simulation.archive.store import Client, Store
from tests.simulation.archive.world import DAY_S, HOUR_S, World
from worker_runtime.protocol.versions.closure import StoreCatalogue

SWEPT_S = DAY_S + 4 * HOUR_S


@dataclass(frozen=True)
class _Claim:
    cluster: str
    at: float


class InvariantWatch:
    """Checks after every change of the store. `damaged`: names of manifests that the world has damaged."""

    def __init__(self, world: World, store: Store, queries: Mapping[str, Query]) -> None:
        """`queries`: by the names of their clusters."""
        self._world = world
        self._store = store
        self._queries = queries
        self._manifests: dict[str, frozenset[str]] = {}  # in the store: their packs
        self.newest = ""  # the manifest that was written last
        self._claims: list[_Claim] = []
        self._nameless_since: dict[str, float] = {}  # packs
        self.damaged: set[str] = set()
        self.clock_went_back = False  # so that nobody knows any more which manifest is the newest
        store.watch = self

    @property
    def holder(self) -> str:
        """The cluster that may write; empty: none."""
        return self._claims[-1].cluster if self._claims else ""

    def put(self, name: str, data: bytes, by: Client) -> None:
        kind = name.split("/")[1]
        if kind == BATCHES:
            self._world.say(f"{by.cluster}: manifest {name}")
            self.damaged.discard(name)
            self.newest = name
            try:
                manifest = manifest_of(data, name)
                self._manifests[name] = manifest.packs
                for pack in manifest.packs:
                    self._nameless_since.pop(pack, None)
                self._check_manifest(manifest, by)
            except (RhinoError, LookupError) as error:
                self._world.fail(f"manifest {name} of {by.cluster} cannot be read: {error}")
        elif kind == "packs":
            self._nameless_since.setdefault(name.rpartition("/")[2], self._world.now)
        elif kind == "writer":
            self._claims.append(_Claim(by.cluster, self._world.now))
            self._world.say(f"{by.cluster} has the claim")

    def deleted(self, name: str, by: Client) -> None:
        """Nothing that a manifest names is deleted. The newest manifest stays."""
        pack = name.rpartition("/")[2]
        self._world.say(f"{by.cluster}: deleted {name[:40]}")
        self.damaged.discard(name)
        self._nameless_since.pop(pack, None)
        for former in self._manifests.pop(name, frozenset()).difference(*self._manifests.values()):
            self._nameless_since[former] = self._world.now
        self._world.require(
            name != self.newest or self.clock_went_back, f"the newest manifest {name} was deleted by {by.cluster}"
        )
        for manifest, packs in self._manifests.items():
            self._world.require(pack not in packs, f"{name} was deleted by {by.cluster}, and {manifest} names it")

    def _check_manifest(self, manifest: Manifest, by: Client) -> None:
        """It names no byte that is not there, and has exactly the versions that were logged. Only the holder of the
        claim writes: it has looked at the claim since it decided to."""
        require = self._world.require
        held = [at for at, claim in enumerate(self._claims) if claim.cluster == by.cluster]
        ends = [self._claims[at + 1].at if at + 1 < len(self._claims) else self._world.now for at in held]
        require(
            any(end >= by.began_at for end in ends),
            f"{by.cluster} writes {manifest.name}: it had lost the claim when it began at {by.began_at:.0f} s",
        )
        logged = self._queries[by.cluster].logged[manifest.digest]
        require(manifest.batch_id == logged.batch_id, f"{manifest.name} has the versions of batch {logged.batch_id}")
        found: list[StoreVersion] = []
        for part in manifest.parts:
            found += self._check_part(part)
        require(sorted(found) == sorted(logged.versions), f"{manifest.name} has other versions than its batch: {found}")
        groups = sorted(group for part in manifest.parts for group in part.groups)
        require(groups == sorted(set(groups)), f"{manifest.name} has a group twice: {groups}")
        for file in manifest.checkpoint:
            require(
                file == (f"offsets/{manifest.batch_id}", digest_of(logged.versions).encode()),
                f"{manifest.name} has {file.path} of another history",
            )

    def _check_part(self, part: Part) -> Iterable[StoreVersion]:
        name = pack_name(JOB, part.place.pack)
        if name not in self._store.objects:
            self._world.fail(f"a manifest names {name}, which is not there")
            return []
        listed = versions_of(self._bytes(part.place.pack, part.place.offset, part.place.size_bytes), part)
        groups = {one.version.store.group for one in listed}
        self._world.require(groups == set[GroupId](part.groups), f"the list in {name} has the groups {groups}")
        for one in listed:
            catalogue = StoreCatalogue(file.entry for file in one.files)
            self._world.require(catalogue.holds(one.version.version), f"the list in {name} does not open {one.version}")
            for file in one.files:
                self._check_file(file, part)
        return [one.version for one in listed]

    def _check_file(self, file: ArchivedFile, part: Part) -> None:
        what = f"{file.entry.store}/{file.entry.name}"
        missing = {e.pack for e in file.extents if pack_name(JOB, e.pack) not in self._store.objects}
        self._world.require(not missing, f"{what} is named in packs {missing}, which are not there")
        self._world.require({e.pack for e in file.extents} <= set(part.packs), f"{what}: its packs are not of the part")
        if not missing:
            data = b"".join(self._bytes(e.pack, e.offset, e.size_bytes) for e in file.extents)
            self._world.require(
                (len(data), crc32c(data)) == (file.entry.size_bytes, file.entry.crc32c), f"{what} has other bytes"
            )

    def _bytes(self, pack: str, offset: int, size_bytes: int) -> bytes:
        return self._store.objects[pack_name(JOB, pack)].data[offset : offset + size_bytes]

    # ---------------------------------------------------------------- after the faults

    def check_archived(self, cluster: str) -> None:
        """The newest logged batch is in the archive, unless retention took it for an old one."""
        logged = self._queries[cluster].log[-1]
        digest = digest_of(logged.versions)
        there = any(name.endswith(f"{logged.batch_id:020d}-{digest}") for name in self._manifests)
        self._world.require(
            there or self.clock_went_back, f"batch {logged.batch_id} of {cluster} is not in the archive"
        )

    def check_swept(self) -> None:
        """Packs without a name have gone, a day later and some sweeps."""
        left = [pack for pack, since in self._nameless_since.items() if since < self._world.now - SWEPT_S]
        self._world.require(not left, f"{len(left)} packs have had no name for long, such as {left[:1]}")
