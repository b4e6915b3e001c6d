"""Packs hold the bytes of files, whatever their sizes are."""

from __future__ import annotations

import hashlib
from itertools import pairwise

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from rhino_archive.manifest import OWN, ArchivedFile, ArchivedVersion, Extent, versions_of
from rhino_archive.packs import RANDOM_BYTES, Closed, Pack, Packer, ranges
from rhino_core.ids import FileEntry, StoreId, StoreVersion, Version

STORE = StoreId("job", 0, 3, "default")
PACK_BYTES = 64


def packed(contents: list[list[bytes]], pack_bytes: int = PACK_BYTES) -> tuple[dict[str, bytes], Closed]:
    """Files, each in pieces. Returns the packs by name, and the end."""
    packer, packs, files = Packer(pack_bytes), list[Pack](), []
    for number, pieces in enumerate(contents):
        for piece in pieces:
            packs += packer.add(piece)
        content = b"".join(pieces)
        entry = FileEntry(STORE, f"SSTs/{number:06}-x.sst", len(content), crc32c(content))
        files.append(ArchivedFile(entry, packer.end()))
    version = ArchivedVersion(StoreVersion(STORE, Version(1, "a")), tuple(files))
    closed = packer.close([version], [STORE.group])
    return {pack.name: pack.data for pack in (*packs, *closed.packs)}, closed


def read(packs: dict[str, bytes], file: ArchivedFile) -> bytes:
    return b"".join(packs[at.pack][at.offset : at.offset + at.size_bytes] for at in file.extents)


@given(st.lists(st.lists(st.binary(max_size=200), max_size=4), max_size=8))
def test_every_file_comes_back_by_the_list_in_the_last_pack(contents: list[list[bytes]]) -> None:
    packs, closed = packed(contents)
    place = closed.part.place
    listed = packs[place.pack][place.offset :]
    assert len(listed) == place.size_bytes, "the list is the end of its pack"
    (version,) = versions_of(listed, closed.part)
    assert (version,) == closed.versions
    assert [read(packs, file) for file in version.files] == [b"".join(pieces) for pieces in contents]
    assert set(closed.part.packs) == {at.pack for file in version.files for at in file.extents} | {place.pack}
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in packs.items())
    assert all(len(data) <= PACK_BYTES for name, data in packs.items() if name != place.pack)


def test_the_pack_of_the_list_is_full_as_others_are_unless_the_list_alone_is_larger() -> None:
    packs, closed = packed([[bytes(500)]], 530)
    assert len(packs) == 2, "the list did not fit"
    packs, closed = packed([[bytes(500)]], 2000)
    assert list(packs) == [closed.part.place.pack]


def test_no_two_uploads_make_the_same_pack() -> None:
    first, second = packed([[b"x" * 10]])[0], packed([[b"x" * 10]])[0]
    assert not first.keys() & second.keys()


def test_the_memory_is_that_of_the_pack_under_way() -> None:
    packer = Packer(PACK_BYTES)
    assert len(packer.add(bytes(10 * PACK_BYTES))) == 10 * PACK_BYTES // (PACK_BYTES - RANDOM_BYTES)
    assert sum(map(len, packer._pieces)) < PACK_BYTES
    assert packer.named(packer.end())[-1].pack == OWN


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(1, 40))))
def test_a_range_is_the_bytes_of_its_extents(places: list[tuple[str, int, int]]) -> None:
    extents = [Extent(*place) for place in places]
    found = ranges(extents, 50)
    assert [extent for _, theirs in found for extent in theirs] == extents
    for range_, theirs in found:
        assert range_.size_bytes == sum(extent.size_bytes for extent in theirs) <= 50
        assert all(one.offset + one.size_bytes == other.offset for one, other in pairwise(theirs))
        assert {range_.pack} == {extent.pack for extent in theirs}
        assert range_.offset == theirs[0].offset
