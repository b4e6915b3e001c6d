"""Packs: bytes of files one after the other, in objects of a limited size. No I/O here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from crc32c import crc32c

from rhino_archive.manifest import OWN, ArchivedFile, ArchivedVersion, Extent, Part, versions_bytes
from rhino_core.ids import GroupId

PACK_BYTES = 32 * 1024 * 1024
RANDOM_BYTES = 16  # at the beginning: no two uploads make the same pack


@dataclass(frozen=True, slots=True)
class Pack:
    """A complete pack. `name`: the SHA-256 of `data` in hexadecimal digits."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """The end of an upload. `packs` are not uploaded yet. `versions` have the real names of all packs."""

    packs: tuple[Pack, ...]
    part: Part
    versions: tuple[ArchivedVersion, ...]


class Packer:
    """Makes the packs of one part. It keeps the bytes of the pack under way only.

    A pack has its name at its end. Until then, extents have "#<number>" instead; `named` replaces it.
    """

    def __init__(self, pack_bytes: int = PACK_BYTES, random: Callable[[int], bytes] = os.urandom) -> None:
        self._pack_bytes = pack_bytes
        self._random = random
        self._names: dict[str, str] = {}  # of complete packs, by number
        self._extents: list[Extent] = []  # of the file under way
        self._begin()

    def _begin(self) -> None:
        beginning = self._random(RANDOM_BYTES)
        self._pieces: list[bytes | memoryview] = [beginning]
        self._size = len(beginning)
        self._hash = hashlib.sha256(beginning)

    @property
    def _number(self) -> str:
        return f"#{len(self._names)}"

    def add(self, data: bytes) -> list[Pack]:
        """Appends bytes of the file under way. Returns the packs that are complete with them, usually none."""
        packs, left = [], memoryview(data)
        while left:
            piece, left = left[: self._pack_bytes - self._size], left[self._pack_bytes - self._size :]
            last = self._extents[-1] if self._extents else None
            if last is not None and last.pack == self._number:
                self._extents[-1] = replace(last, size_bytes=last.size_bytes + len(piece))
            else:
                self._extents.append(Extent(self._number, self._size, len(piece)))
            self._append(piece)
            if self._size >= self._pack_bytes:
                packs.append(self._seal())
        return packs

    def end(self) -> tuple[Extent, ...]:
        """Ends the file under way. Returns its bytes in order."""
        extents, self._extents = tuple(self._extents), []
        return extents

    def named(self, extents: Sequence[Extent]) -> tuple[Extent, ...]:
        """The extents with the names of their packs. The pack under way has the name OWN."""
        return tuple(
            replace(extent, pack=self._names.get(extent.pack, OWN)) if extent.pack.startswith("#") else extent
            for extent in extents
        )

    def close(self, versions: Sequence[ArchivedVersion], groups: Sequence[GroupId]) -> Closed:
        """Puts the list of the versions at the end of the last pack. `versions`: with extents as `end` gave them."""
        packs: list[Pack] = []
        listed = self._listed(versions)
        if self._size > RANDOM_BYTES and self._size + len(listed) > self._pack_bytes:
            packs.append(self._seal())
            listed = self._listed(versions)
        offset, number = self._size, self._number
        self._append(listed)
        packs.append(self._seal())
        own = self._names[number]
        real = tuple(self._renamed(version) for version in versions)
        named = dict.fromkeys(extent.pack for one in real for file in one.files for extent in file.extents)
        part = Part(Extent(own, offset, len(listed)), crc32c(listed), tuple(groups), tuple({**named, own: None}))
        return Closed(tuple(packs), part, real)

    def _listed(self, versions: Sequence[ArchivedVersion]) -> bytes:
        return versions_bytes([self._renamed(version) for version in versions])

    def _renamed(self, version: ArchivedVersion) -> ArchivedVersion:
        files = (ArchivedFile(file.entry, self.named(file.extents)) for file in version.files)
        return ArchivedVersion(version.version, tuple(files))

    def _append(self, piece: bytes | memoryview) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        self._hash.update(piece)

    def _seal(self) -> Pack:
        pack = Pack(self._hash.hexdigest(), b"".join(self._pieces))
        self._names[self._number] = pack.name
        self._begin()
        return pack


def ranges(extents: Iterable[Extent], most_bytes: int = PACK_BYTES) -> list[tuple[Extent, list[Extent]]]:
    """Adjacent extents of one pack, read by one request. Each range comes with its extents, all in the same order."""
    found: list[tuple[Extent, list[Extent]]] = []
    for extent in extents:
        last = found[-1][0] if found else None
        if (
            last is not None
            and (extent.pack, extent.offset) == (last.pack, last.offset + last.size_bytes)
            and last.size_bytes + extent.size_bytes <= most_bytes
        ):
            found[-1][1].append(extent)
            found[-1] = replace(last, size_bytes=last.size_bytes + extent.size_bytes), found[-1][1]
        else:
            found.append((extent, [extent]))
    return found
