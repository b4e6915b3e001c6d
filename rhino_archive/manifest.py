"""The content of an archived batch, and its form in the archive."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from crc32c import crc32c
from google.protobuf.message import DecodeError, Message

from rhino_core.errors import IntegrityError, PreconditionError, RemoteProtocolError
from rhino_core.ids import FileEntry, GroupId, StoreVersion
from rhino_core.rpc.convert import group_of, group_to_pb, store_version_of, store_version_to_pb
from rhino_core.rpc.gate import checked
from rhino_core.rpc.inventory import files_of, files_to_pb
from rhino_pb import archive_pb2 as pb

FORMAT = 1
BATCHES = "batches"
_MAGIC = b"RHINOARC"
_HEAD = struct.Struct(">8sII")  # magic, format, crc32c of the rest
_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of a pack. `pack`: its SHA-256 in hexadecimal digits."""

    pack: str
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file, and its bytes in order."""

    entry: FileEntry
    extents: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class ArchivedVersion:
    """A version, and the files of one of its closures."""

    version: StoreVersion
    files: tuple[ArchivedFile, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Where the list of the versions of some groups lies. `packs`: all that the list needs, and its own."""

    place: Extent
    crc32c: int
    groups: tuple[GroupId, ...]
    packs: tuple[str, ...]


class CheckpointFile(NamedTuple):
    """`path`: below the query checkpoint."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """A logged batch whose state is whole in the archive. Times in Unix milliseconds.

    `cluster`: id of the cluster that has written it. `query` and `location`: name and checkpoint of the query.
    `checkpoint`: the other files of the query checkpoint that belong to the batch; none: the driver did not send
    them. `digest`: of the versions. After a rewind a query computes a batch again, with other versions.
    """

    job: str
    batch_id: int
    logged_ms: int
    written_ms: int
    cluster: str
    query: str
    location: str
    digest: str
    parts: tuple[Part, ...]
    checkpoint: tuple[CheckpointFile, ...] = ()

    @property
    def packs(self) -> frozenset[str]:
        """All packs that the batch needs."""
        return frozenset(pack for part in self.parts for pack in part.packs)

    def part_of(self, group: GroupId) -> Part | None:
        return next((part for part in self.parts if group in part.groups), None)

    @property
    def name(self) -> str:
        """The name of the object."""
        return f"{batch_prefix(self.job, self.batch_id)}{self.digest}"


def batch_prefix(job: str, batch_id: int) -> str:
    """The beginning of the names of all manifests of a batch. Those of later batches come later in a listing."""
    return f"{job}/{BATCHES}/{batch_id:020d}-"


def digest_of(versions: Iterable[StoreVersion]) -> str:
    """The same for the same versions in any order."""
    text = "\n".join(sorted(map(str, versions)))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def pack_name(job: str, pack: str) -> str:
    return f"{job}/packs/{pack}"


def manifest_bytes(manifest: Manifest) -> bytes:
    message = pb.ArchiveManifest(
        format=FORMAT,
        job=manifest.job,
        batch_id=manifest.batch_id,
        logged_ms=manifest.logged_ms,
        written_ms=manifest.written_ms,
        cluster=manifest.cluster,
        query=manifest.query,
        location=manifest.location,
        digest=manifest.digest,
        parts=map(part_to_pb, manifest.parts),
        checkpoint=[pb.CheckpointFile(path=file.path, data=file.data) for file in manifest.checkpoint],
    )
    body = zlib.compress(message.SerializeToString())
    return _HEAD.pack(_MAGIC, FORMAT, crc32c(body)) + body


def manifest_of(data: bytes, name: str) -> Manifest:
    """Raises IntegrityError for damage, and PreconditionError for a later format. Both name the object."""
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise IntegrityError(f"{name}: this is no manifest of Rhino's archive")
    _, form, checksum = _HEAD.unpack_from(data)
    if form > FORMAT:
        raise PreconditionError(f"{name}: has format {form}, and this Rhino reads {FORMAT}: install a later version")
    body = data[_HEAD.size :]
    if form != FORMAT or crc32c(body) != checksum:
        raise IntegrityError(f"{name}: the manifest is damaged: its bytes do not match their checksum")
    message = _message(pb.ArchiveManifest, body, name)
    return Manifest(
        job=message.job,
        batch_id=message.batch_id,
        logged_ms=message.logged_ms,
        written_ms=message.written_ms,
        cluster=message.cluster,
        query=message.query,
        location=message.location,
        digest=message.digest,
        parts=tuple(map(part_of, message.parts)),
        checkpoint=tuple(CheckpointFile(file.path, file.data) for file in message.checkpoint),
    )


def part_to_pb(part: Part) -> pb.ArchivePart:
    return pb.ArchivePart(
        pack=bytes.fromhex(part.place.pack),
        offset=part.place.offset,
        size_bytes=part.place.size_bytes,
        crc32c=part.crc32c,
        groups=map(group_to_pb, part.groups),
        packs=map(bytes.fromhex, part.packs),
    )


def part_of(message: pb.ArchivePart) -> Part:
    return Part(
        Extent(message.pack.hex(), message.offset, message.size_bytes),
        message.crc32c,
        tuple(map(group_of, message.groups)),
        tuple(pack.hex() for pack in message.packs),
    )


OWN = ""  # as the name of a pack: the one that the list itself lies in


def versions_bytes(versions: Sequence[ArchivedVersion]) -> bytes:
    """The list of a part."""
    packs = {pack: at for at, pack in enumerate(dict.fromkeys(_packs(versions)))}
    message = pb.ArchivedVersions(
        packs=map(bytes.fromhex, packs),
        versions=[
            pb.ArchivedVersion(
                version=store_version_to_pb(one.version),
                files=files_to_pb([file.entry for file in one.files]),
                bytes=[_bytes_to_pb(file.extents, packs) for file in one.files],
            )
            for one in versions
        ],
    )
    return zlib.compress(message.SerializeToString())


def versions_of(data: bytes, part: Part) -> list[ArchivedVersion]:
    """Raises IntegrityError for damage, with the name of the pack."""
    name = f"the list of files in pack {part.place.pack}"
    if crc32c(data) != part.crc32c:
        raise IntegrityError(f"{name}: its bytes do not match their checksum")
    message = _message(pb.ArchivedVersions, data, name)
    packs = [pack.hex() or part.place.pack for pack in message.packs]
    try:
        return [_version_of(one, packs) for one in message.versions]
    except (IndexError, ValueError, RemoteProtocolError) as error:
        raise IntegrityError(f"{name}: {error}") from error


def _version_of(message: pb.ArchivedVersion, packs: Sequence[str]) -> ArchivedVersion:
    places = ((Extent(packs[e.pack], e.offset, e.size_bytes) for e in one.extents) for one in message.bytes)
    files = zip(files_of(message.files), map(tuple, places), strict=True)
    return ArchivedVersion(store_version_of(message.version), tuple(ArchivedFile(*file) for file in files))


def _bytes_to_pb(extents: Sequence[Extent], packs: dict[str, int]) -> pb.ArchivedBytes:
    return pb.ArchivedBytes(
        extents=[pb.ArchiveExtent(pack=packs[e.pack], offset=e.offset, size_bytes=e.size_bytes) for e in extents]
    )


def _packs(versions: Sequence[ArchivedVersion]) -> list[str]:
    return [extent.pack for one in versions for file in one.files for extent in file.extents]


def _message(kind: Callable[[], _M], data: bytes, name: str) -> _M:
    message = kind()
    try:
        message.ParseFromString(zlib.decompress(data))
        return checked(message, name)
    except (zlib.error, DecodeError, RemoteProtocolError) as error:
        raise IntegrityError(f"{name}: {error}") from error
