"""Kinds of damage. Each function plants one, and returns the name of the object that must be reported."""

from __future__ import annotations

import os
import struct
from dataclasses import replace

from crc32c import crc32c

from rhino_archive.manifest import CheckpointFile, Extent, manifest_bytes
from rhino_core.ids import FileKind, Version
from tests.rhino_archive.support.planted import Planted, flip

# ---------------------------------------------------------------- packs


def pack_missing(archive: Planted) -> str:
    archive.file_pack.unlink()
    return archive.file_pack.name


def pack_with_a_list_missing(archive: Planted) -> str:
    archive.list_pack.unlink()
    return archive.list_pack.name


def pack_truncated(archive: Planted) -> str:
    archive.file_pack.write_bytes(archive.file_pack.read_bytes()[:-1])
    return archive.file_pack.name


def pack_extended(archive: Planted) -> str:
    archive.file_pack.write_bytes(archive.file_pack.read_bytes() + b"x")
    return archive.file_pack.name


def pack_empty(archive: Planted) -> str:
    archive.file_pack.write_bytes(b"")
    return archive.file_pack.name


def pack_of_zeros(archive: Planted) -> str:
    archive.file_pack.write_bytes(bytes(archive.file_pack.stat().st_size))
    return archive.file_pack.name


def bit_flipped_at_the_head_of_a_pack(archive: Planted) -> str:
    """In its random bytes, which no file has."""
    return flip(archive.file_pack, 0)


def bit_flipped_in_the_middle_of_a_pack(archive: Planted) -> str:
    return flip(archive.file_pack, archive.file_pack.stat().st_size // 2)


def bit_flipped_in_a_list(archive: Planted) -> str:
    place = archive.manifest.parts[1].place
    return flip(archive.list_pack, place.offset + place.size_bytes // 2)


def packs_swapped(archive: Planted) -> str:
    one, other = archive.file_pack, archive.list_pack
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    return one.name


def pack_that_is_a_link_to_nothing(archive: Planted) -> str:
    pack = archive.file_pack
    pack.unlink()
    pack.symlink_to("nowhere")
    return pack.name


# ---------------------------------------------------------------- manifests


def manifest_empty(archive: Planted) -> str:
    archive.path.write_bytes(b"")
    return archive.path.name


def manifest_truncated(archive: Planted) -> str:
    archive.path.write_bytes(archive.path.read_bytes()[:-3])
    return archive.path.name


def manifest_bit_flipped(archive: Planted) -> str:
    return flip(archive.path, archive.path.stat().st_size // 2)


def manifest_of_another_program(archive: Planted) -> str:
    archive.path.write_bytes(b"<html>404</html>" * 100)
    return archive.path.name


def manifest_of_a_newer_format(archive: Planted) -> str:
    data = archive.path.read_bytes()
    archive.path.write_bytes(data[:8] + struct.pack(">I", 2) + data[12:])
    return archive.path.name


def manifest_of_another_query(archive: Planted) -> str:
    return archive.change(job="other")


def manifest_of_another_batch(archive: Planted) -> str:
    return archive.change(batch_id=3)


def manifest_under_the_name_of_another(archive: Planted) -> str:
    archive.path.write_bytes(archive.manifests[0].read_bytes())
    return archive.path.name


def manifest_with_another_digest(archive: Planted) -> str:
    """Under the name that belongs to it."""
    manifest = replace(archive.manifest, digest="00" * 8)
    archive.path.unlink()
    (archive.folder / manifest.name).write_bytes(manifest_bytes(manifest))
    return manifest.name


def manifest_without_fields(archive: Planted) -> str:
    return archive.change(cluster="", digest="", location="")


def manifest_without_parts(archive: Planted) -> str:
    return archive.change(parts=())


def partition_missing(archive: Planted) -> str:
    return archive.change(parts=archive.manifest.parts[:1])


def partition_twice(archive: Planted) -> str:
    return archive.change(parts=(*archive.manifest.parts, archive.manifest.parts[0]))


def part_with_groups_of_another(archive: Planted) -> str:
    archive.part(groups=archive.manifest.parts[0].groups)
    return archive.list_pack.name


def part_without_one_of_its_packs(archive: Planted) -> str:
    """Retention would delete the pack."""
    packs = archive.manifest.parts[1].packs
    name = archive.file_pack.name
    archive.part(packs=tuple(pack for pack in packs if pack != name))
    return name


def part_at_a_wrong_offset(archive: Planted) -> str:
    place = archive.manifest.parts[1].place
    archive.part(place=replace(place, offset=place.offset - 1))
    return place.pack


def part_of_a_wrong_size(archive: Planted) -> str:
    place = archive.manifest.parts[1].place
    archive.part(place=replace(place, size_bytes=place.size_bytes - 1))
    return place.pack


def part_with_a_wrong_checksum(archive: Planted) -> str:
    archive.part(crc32c=1)
    return archive.list_pack.name


def part_in_a_pack_that_was_never_there(archive: Planted) -> str:
    place = archive.manifest.parts[1].place
    archive.part(place=replace(place, pack="ab" * 32))
    return "ab" * 32


def manifests_that_contradict_each_other(archive: Planted) -> str:
    """A file has other bytes than in batch 7, and they match their checksum."""
    place = archive.manifest.parts[1].place
    extent = replace(place, size_bytes=5)
    sums = crc32c(archive.list_pack.read_bytes()[extent.offset : extent.offset + 5])
    archive.refile(lambda file: replace(file, entry=replace(file.entry, size_bytes=5, crc32c=sums), extents=(extent,)))
    return place.pack


# ---------------------------------------------------------------- lists


def file_with_a_wrong_checksum(archive: Planted) -> str:
    return archive.refile(lambda file: replace(file, entry=replace(file.entry, crc32c=1)))


def file_of_a_wrong_size(archive: Planted) -> str:
    return archive.refile(lambda file: replace(file, entry=replace(file.entry, size_bytes=file.entry.size_bytes + 1)))


def extents_out_of_order(archive: Planted) -> str:
    def halves(extent: Extent) -> tuple[Extent, Extent]:
        half = extent.size_bytes // 2
        second = Extent(extent.pack, extent.offset + half, extent.size_bytes - half)
        return second, replace(extent, size_bytes=half)

    return archive.refile(lambda file: replace(file, extents=(*halves(file.extents[0]), *file.extents[1:])))


def extents_that_overlap(archive: Planted) -> str:
    def doubled(extent: Extent) -> tuple[Extent, Extent]:
        return replace(extent, size_bytes=extent.size_bytes - 1), replace(extent, size_bytes=1)

    return archive.refile(lambda file: replace(file, extents=(*doubled(file.extents[0]), *file.extents[1:])))


def extent_beyond_its_pack(archive: Planted) -> str:
    return archive.refile(lambda file: replace(file, extents=(replace(file.extents[0], offset=1 << 40),)))


def extent_of_another_file(archive: Planted) -> str:
    others = archive.listed()[0].files[1].extents
    return archive.refile(lambda file: replace(file, extents=others))


def file_without_its_extents(archive: Planted) -> str:
    first, *others = archive.listed()
    name = first.files[0].entry.name
    archive.relist([replace(first, files=(replace(first.files[0], extents=()), *first.files[1:])), *others])
    return name


def file_of_another_store(archive: Planted) -> str:
    first, second, *others = archive.listed()
    assert first.version.store != second.version.store
    return archive.relist([replace(first, files=(*first.files, second.files[0])), second, *others])


def list_without_a_data_file(archive: Planted) -> str:
    return _without(archive, FileKind.SST)


def list_without_a_snapshot(archive: Planted) -> str:
    return _without(archive, FileKind.SNAPSHOT)


def list_without_a_changelog(archive: Planted) -> str:
    return _without(archive, FileKind.CHANGELOG)


def _without(archive: Planted, kind: FileKind) -> str:
    first, *others = archive.listed()
    gone = next(file for file in first.files if file.entry.kind is kind)
    return archive.relist([replace(first, files=tuple(file for file in first.files if file != gone)), *others])


def list_without_files(archive: Planted) -> str:
    first, *others = archive.listed()
    return archive.relist([replace(first, files=()), *others])


def snapshot_that_names_a_file_too_many(archive: Planted) -> str:
    first, *others = archive.listed()
    files = [
        replace(file, entry=replace(file.entry, references=(*file.entry.references, "SSTs/000099-x.sst")))
        if file.entry.kind is FileKind.SNAPSHOT
        else file
        for file in first.files
    ]
    return archive.relist([replace(first, files=tuple(files)), *others])


def version_twice_in_a_list(archive: Planted) -> str:
    listed = archive.listed()
    archive.relist([*listed, listed[0]])
    return archive.path.name


def version_missing_in_a_list(archive: Planted) -> str:
    listed = archive.listed()
    archive.relist(listed[1:])
    return archive.path.name


def version_of_another_history(archive: Planted) -> str:
    first, *others = archive.listed()
    other = Version(first.version.version.version, "other")
    archive.relist([replace(first, version=first.version._replace(version=other)), *others])
    return archive.path.name


# ---------------------------------------------------------------- the query checkpoint, and others


def checkpoint_without_its_offsets(archive: Planted) -> str:
    return _checkpoint_without(archive, f"offsets/{archive.manifest.batch_id}")


def checkpoint_without_its_commit(archive: Planted) -> str:
    return _checkpoint_without(archive, f"commits/{archive.manifest.batch_id}")


def checkpoint_without_its_metadata(archive: Planted) -> str:
    return _checkpoint_without(archive, "metadata")


def _checkpoint_without(archive: Planted, path: str) -> str:
    files = archive.manifest.checkpoint
    return archive.change(checkpoint=tuple(file for file in files if file.path != path))


def checkpoint_file_that_leaves_its_folder(archive: Planted) -> str:
    return archive.change(checkpoint=(*archive.manifest.checkpoint, CheckpointFile("../../etc/passwd", b"x")))


def checkpoint_file_with_an_absolute_path(archive: Planted) -> str:
    return archive.change(checkpoint=(*archive.manifest.checkpoint, CheckpointFile("/etc/passwd", b"x")))


def claim_missing(archive: Planted) -> str:
    (archive.folder / "job" / "writer").unlink()
    return "job/writer"


def claim_damaged(archive: Planted) -> str:
    (archive.folder / "job" / "writer").write_bytes(b'{"cluster')
    return "job/writer"


def claim_of_another_form(archive: Planted) -> str:
    (archive.folder / "job" / "writer").write_bytes(b"[]")
    return "job/writer"


def object_of_a_stranger_among_packs(archive: Planted) -> str:
    (archive.folder / "job" / "packs" / "core.1234").write_bytes(os.urandom(10))
    return "core.1234"


def object_of_a_stranger_among_batches(archive: Planted) -> str:
    (archive.folder / "job" / "batches" / "latest").write_bytes(b"8")
    return "batches/latest"


def object_of_a_stranger_beside_them(archive: Planted) -> str:
    (archive.folder / "job" / ".DS_Store").write_bytes(b"x")
    return ".DS_Store"


DAMAGES = [
    pack_missing,
    pack_with_a_list_missing,
    pack_truncated,
    pack_extended,
    pack_empty,
    pack_of_zeros,
    bit_flipped_at_the_head_of_a_pack,
    bit_flipped_in_the_middle_of_a_pack,
    bit_flipped_in_a_list,
    packs_swapped,
    pack_that_is_a_link_to_nothing,
    manifest_empty,
    manifest_truncated,
    manifest_bit_flipped,
    manifest_of_another_program,
    manifest_of_a_newer_format,
    manifest_of_another_query,
    manifest_of_another_batch,
    manifest_under_the_name_of_another,
    manifest_with_another_digest,
    manifest_without_fields,
    manifest_without_parts,
    partition_missing,
    partition_twice,
    part_with_groups_of_another,
    part_without_one_of_its_packs,
    part_at_a_wrong_offset,
    part_of_a_wrong_size,
    part_with_a_wrong_checksum,
    part_in_a_pack_that_was_never_there,
    manifests_that_contradict_each_other,
    file_with_a_wrong_checksum,
    file_of_a_wrong_size,
    extents_out_of_order,
    extents_that_overlap,
    extent_beyond_its_pack,
    extent_of_another_file,
    file_without_its_extents,
    file_of_another_store,
    list_without_a_data_file,
    list_without_a_snapshot,
    list_without_a_changelog,
    list_without_files,
    snapshot_that_names_a_file_too_many,
    version_twice_in_a_list,
    version_missing_in_a_list,
    version_of_another_history,
    checkpoint_without_its_offsets,
    checkpoint_without_its_commit,
    checkpoint_without_its_metadata,
    checkpoint_file_that_leaves_its_folder,
    checkpoint_file_with_an_absolute_path,
    claim_missing,
    claim_damaged,
    claim_of_another_form,
    object_of_a_stranger_among_packs,
    object_of_a_stranger_among_batches,
    object_of_a_stranger_beside_them,
]
