"""`Verifier` finds every planted damage, and names the object."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import ArchivedFile, ArchivedVersion, Manifest, manifest_bytes, pack_name
from rhino_archive.packs import Packer
from rhino_archive.verifying import Verifier
from rhino_core.ids import FileEntry, GroupId, StoreId, StoreVersion, Version

STORE = StoreId("job", 0, 0, "default")
CONTENT = {"1_a.changelog": b"one" * 10, "SSTs/000001-a.sst": bytes(range(256)) * 2}
PACK_BYTES = 200  # the larger file lies in several packs


async def archived(folder: Path) -> Manifest:
    bucket, packer, files = Bucket(str(folder)), Packer(PACK_BYTES), []
    packs = []
    for name, content in CONTENT.items():
        packs += packer.add(content)
        files.append(ArchivedFile(FileEntry(STORE, name, len(content), crc32c(content)), packer.end()))
    closed = packer.close([ArchivedVersion(StoreVersion(STORE, Version(1, "a")), tuple(files))], [GroupId("job", 0, 0)])
    for pack in (*packs, *closed.packs):
        await bucket.put(pack_name("job", pack.name), pack.data)
    manifest = Manifest("job", 0, 1, 2, "c", "q", "/l", "d", (closed.part,))
    await bucket.put(manifest.name, manifest_bytes(manifest))
    return manifest


async def problems(folder: Path, name: str) -> list[str]:
    verifier = Verifier(Bucket(str(folder)), "job")
    await verifier.verify(name)
    return verifier.found.problems


async def test_a_sound_batch(tmp_path: Path) -> None:
    manifest = await archived(tmp_path)
    heard: list[int] = []
    verifier = Verifier(Bucket(str(tmp_path)), "job", lambda found: heard.append(found.packs))
    for _ in range(2):  # a second batch with the same files reads nothing again
        await verifier.verify(manifest.name)
    found = verifier.found
    assert (found.batches, found.files, found.problems) == (2, 2, [])
    sizes = [path.stat().st_size for path in (tmp_path / "job" / "packs").iterdir()]
    assert (found.packs, found.size_bytes) == (len(sizes), sum(sizes))
    assert heard == list(range(1, len(sizes) + 1))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
@pytest.mark.parametrize("number", range(4))
async def test_damage_of_any_object_is_found_and_named(
    tmp_path: Path, damage: Callable[[Path], None], number: int
) -> None:
    manifest = await archived(tmp_path)
    objects = [tmp_path / manifest.name, *sorted((tmp_path / "job" / "packs").iterdir())]
    assert len(objects) >= 4
    damage(objects[number])
    found = await problems(tmp_path, manifest.name)
    assert found
    assert all(objects[number].name in problem for problem in found), found


async def test_a_pack_of_a_stranger_under_the_right_name_is_found(tmp_path: Path) -> None:
    manifest = await archived(tmp_path)
    first, second = sorted((tmp_path / "job" / "packs").iterdir())[:2]
    first.write_bytes(second.read_bytes())
    found = await problems(tmp_path, manifest.name)
    assert any(first.name in problem and "do not match its name" in problem for problem in found), found
