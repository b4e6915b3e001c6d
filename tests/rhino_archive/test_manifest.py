"""The forms of an archive: whatever is written comes back, and damage is found."""

from __future__ import annotations

import hashlib

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from rhino_archive.manifest import (
    OWN,
    ArchivedFile,
    ArchivedVersion,
    CheckpointFile,
    Extent,
    Manifest,
    Part,
    manifest_bytes,
    manifest_of,
    versions_bytes,
    versions_of,
)
from rhino_core.errors import IntegrityError, PreconditionError
from rhino_core.ids import FileEntry, GroupId, StoreId, StoreVersion, Version

NAMES = [hashlib.sha256(bytes([number])).hexdigest() for number in range(4)]
packs = st.sampled_from(NAMES)
extents = st.builds(Extent, packs, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
groups = st.builds(GroupId, st.just("job"), st.integers(0, 5), st.integers(0, 1000))
parts = st.builds(
    Part,
    extents,
    st.integers(0, (1 << 32) - 1),
    st.lists(groups, max_size=4).map(tuple),
    st.lists(packs, max_size=4).map(tuple),
)
numbers = st.integers(0, 1 << 40)
manifests = st.builds(
    Manifest,
    job=st.just("job"),
    batch_id=numbers,
    logged_ms=numbers,
    written_ms=numbers,
    cluster=st.sampled_from(["", "cluster-1"]),
    query=st.sampled_from(["", "orders by customer"]),
    location=st.just("s3://bucket/checkpoint"),
    digest=st.sampled_from(["0", "a1b2"]),
    checkpoint=st.lists(st.builds(CheckpointFile, st.just("offsets/7"), st.binary(max_size=9)), max_size=2).map(tuple),
    parts=st.lists(parts, max_size=3).map(tuple),
)


def version_of(number: int, files: int, pack: str) -> ArchivedVersion:
    store = StoreId("job", 0, number, "default")
    lineage = tuple(Version(before, "a") for before in range(1, 60))
    archived = []
    for file in range(files):
        name = f"{60 + file}_a.changelog" if file else "59_a.zip"
        entry = FileEntry(store, name, 10, 7, lineage=(*lineage, *(Version(60 + n, "a") for n in range(file))))
        archived.append(ArchivedFile(entry if file else FileEntry(store, name, 10, 7), (Extent(pack, file * 10, 10),)))
    return ArchivedVersion(StoreVersion(store, Version(60 + files, "a")), tuple(archived))


@given(manifests)
def test_a_manifest_comes_back(manifest: Manifest) -> None:
    assert manifest_of(manifest_bytes(manifest), "m") == manifest


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), packs), max_size=4))
def test_a_list_comes_back(made: list[tuple[int, int, str]]) -> None:
    versions = [version_of(*one) for one in made]
    data = versions_bytes(versions)
    part = Part(Extent(NAMES[0], 16, len(data)), crc32c(data), (), ())
    assert versions_of(data, part) == versions


def test_the_own_pack_needs_no_name() -> None:
    data = versions_bytes([version_of(3, 2, OWN)])
    part = Part(Extent(NAMES[1], 16, len(data)), crc32c(data), (), ())
    assert versions_of(data, part) == [version_of(3, 2, NAMES[1])]


PART = Part(Extent(NAMES[0], 1, 2), 3, (GroupId("job", 0, 1),), ())
MANIFEST = Manifest("job", 7, 1, 2, "c", "q", "/l", "d", (PART,))


def test_damage_of_any_byte_of_a_manifest_is_found_and_named() -> None:
    good, name = manifest_bytes(MANIFEST), MANIFEST.name
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        # A later format is no damage: a bit of its number is not told from one.
        with pytest.raises((IntegrityError, PreconditionError) if 8 <= at < 12 else IntegrityError, match=name):
            manifest_of(bytes(bad), name)
    for size in range(len(good)):
        with pytest.raises(IntegrityError, match=name):
            manifest_of(good[:size], name)


def test_damage_of_any_byte_of_a_list_is_found_and_its_pack_named() -> None:
    good = versions_bytes([version_of(3, 2, NAMES[0])])
    part = Part(Extent(NAMES[1], 16, len(good)), crc32c(good), (), ())
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(IntegrityError, match=NAMES[1]):
            versions_of(bytes(bad), part)
