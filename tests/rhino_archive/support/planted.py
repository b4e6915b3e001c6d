"""A small archive made by the real uploader, and ways to damage it so that only its meaning is wrong."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim
from rhino_archive.manifest import (
    ArchivedFile,
    ArchivedVersion,
    CheckpointFile,
    Extent,
    Manifest,
    Part,
    digest_of,
    manifest_bytes,
    manifest_of,
    pack_name,
    part_of,
    part_to_pb,
    versions_bytes,
    versions_of,
)
from rhino_archive.packs import Packer
from rhino_core.rpc.convert import store_version_to_pb
from rhino_pb import archive_pb2
from tests.simulation.archive.query import JOB, Query
from tests.simulation.archive.sidecar import Replies, Sidecar
from tests.simulation.archive.world import Faults, World
from worker_runtime.archiving import uploading

PACK_BYTES = 1000
BATCHES = (7, 8)  # a snapshot belongs to version 8, which batch 7 has written


def make(folder: Path) -> None:
    """Two batches of a query in an archive. Each has two parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uploading, "read_pieces", lambda content, size_bytes: content.pieces(size_bytes))
        patch.setattr(uploading, "Packer", functools.partial(Packer, PACK_BYTES))
        asyncio.run(_make(folder))


async def _make(folder: Path) -> None:
    bucket = Bucket(str(folder))
    world = World(1, Faults.none())
    query, sidecar = Query(world, "a"), Sidecar(world, "w")
    await claim(bucket, JOB, "cluster")
    basis: tuple[Part, ...] = ()
    for _ in range(BATCHES[-1] + 1):
        batch, files = query.batch()
        for entry, data in files:
            sidecar.add(entry, data)
        if batch.batch_id not in BATCHES:
            continue
        parts = []
        for groups in (query.groups[:1], query.groups[1:]):
            replies: Replies = asyncio.Queue()
            versions = [store_version_to_pb(one) for one in batch.versions if one.store.group in groups]
            await sidecar.serve(
                archive_pb2.ArchiveRequest(
                    archive=str(folder), job=JOB, versions=versions, basis=map(part_to_pb, basis)
                ),
                replies,
            )
            found = [replies.get_nowait() for _ in range(replies.qsize())]
            assert found[-1] is None, found
            last = found[-2]
            assert isinstance(last, archive_pb2.ArchiveReply)
            parts.append(part_of(last.part))
        number = batch.batch_id
        checkpoint = tuple(
            CheckpointFile(path, path.encode())
            for path in ("metadata", f"offsets/{number}", f"commits/{number}", f"offsets/{number - 1}")
        )
        manifest = Manifest(
            JOB, number, 1, 2, "cluster", "q", "/l", digest_of(batch.versions), tuple(parts), checkpoint
        )
        await bucket.put(manifest.name, manifest_bytes(manifest))
        basis = manifest.parts
    await bucket.put(f"{JOB}/unnamed", b"{}")


@dataclass
class Planted:
    """The archive in a folder. The damage is to batch 8, unless it says otherwise."""

    folder: Path

    @property
    def manifests(self) -> list[Path]:
        return sorted((self.folder / JOB / "batches").iterdir())

    @property
    def path(self) -> Path:
        return self.manifests[-1]

    @property
    def manifest(self) -> Manifest:
        return manifest_of(self.path.read_bytes(), "m")

    def pack(self, name: str) -> Path:
        return self.folder / pack_name(JOB, name)

    @property
    def list_pack(self) -> Path:
        """The pack with the list of the second part."""
        return self.pack(self.manifest.parts[1].place.pack)

    @property
    def file_pack(self) -> Path:
        """A pack with files of batch 8 and without a list of it."""
        lists = {part.place.pack for part in self.manifest.parts}
        return self.pack(next(pack for pack in self.manifest.parts[1].packs if pack not in lists))

    def listed(self) -> list[ArchivedVersion]:
        """The list of the second part."""
        part = self.manifest.parts[1]
        data = self.pack(part.place.pack).read_bytes()
        return versions_of(data[part.place.offset : part.place.offset + part.place.size_bytes], part)

    def write(self, manifest: Manifest) -> str:
        """With a right checksum, under the name that it had. Returns the name of the object."""
        self.path.write_bytes(manifest_bytes(manifest))
        return self.path.name

    def change(self, **fields: object) -> str:
        return self.write(replace(self.manifest, **fields))  # type: ignore[arg-type]

    def part(self, **fields: object) -> str:
        """Changes the second part. Returns the name of the manifest."""
        first, second = self.manifest.parts
        return self.change(parts=(first, replace(second, **fields)))  # type: ignore[arg-type]

    def relist(self, listed: list[ArchivedVersion], also: tuple[str, ...] = ()) -> str:
        """The second part gets this list, with right checksums. Returns the name of the pack with the list."""
        first, second = self.manifest.parts
        packs = {extent.pack for one in listed for file in one.files for extent in file.extents}
        part, name = self.stored(listed, tuple(dict.fromkeys((*second.packs, *packs, *also))))
        self.change(parts=(first, replace(part, groups=second.groups)))
        return name

    def stored(self, listed: list[ArchivedVersion], packs: tuple[str, ...]) -> tuple[Part, str]:
        """A new pack with a list."""
        data = versions_bytes(listed)
        pack = os.urandom(16) + data
        name = hashlib.sha256(pack).hexdigest()
        self.pack(name).write_bytes(pack)
        groups = tuple(sorted({one.version.store.group for one in listed}))
        return Part(Extent(name, 16, len(data)), crc32c(data), groups, (*packs, name)), name

    def refile(self, change: Callable[[ArchivedFile], ArchivedFile], at: int = 0) -> str:
        """Changes one file in the list. Returns the name of a pack with its bytes."""
        first, *others = self.listed()
        files = list(first.files)
        files[at] = change(files[at])
        self.relist([replace(first, files=tuple(files)), *others])
        return files[at].extents[0].pack


def flip(path: Path, at: int) -> str:
    """Returns the name of the object."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))
    return path.name
