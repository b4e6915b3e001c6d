"""`Verifier` finds every planted damage, and names the object."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from rhino.cli.archive import opens
from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim
from rhino_archive.keeping import Keeper
from rhino_archive.manifest import ArchivedFile, ArchivedVersion, Manifest, digest_of, manifest_bytes, pack_name
from rhino_archive.packs import Packer
from rhino_archive.retention import retention_of
from rhino_archive.verifying import STRANGERS, Verifier
from rhino_core.errors import ConflictError
from rhino_core.ids import FileEntry, GroupId, StoreId, StoreVersion, Version
from tests.rhino_archive.support.damages import DAMAGES
from tests.rhino_archive.support.planted import Planted, make

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
    digest = digest_of([StoreVersion(STORE, Version(1, "a"))])
    manifest = Manifest("job", 0, 1, 2, "c", "q", "/l", digest, (closed.part,))
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make(folder)
    return folder


@pytest.fixture
def planted(made: Path, tmp_path: Path) -> Planted:
    shutil.copytree(made, tmp_path / "archive")
    return Planted(tmp_path / "archive")


async def all_problems(archive: Planted) -> list[str]:
    """As `rhino archive verify`."""
    verifier = Verifier(Bucket(str(archive.folder)), "job", opens=opens)
    for path in archive.manifests:
        await verifier.verify(f"job/batches/{path.name}")
    await verifier.verify_others()
    return verifier.found.problems


async def test_an_archive_of_the_uploader_is_sound(planted: Planted) -> None:
    assert len(planted.manifests) == 2
    assert planted.file_pack.exists()
    assert await all_problems(planted) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_every_kind_of_damage_is_found(planted: Planted, damage: Callable[[Planted], str]) -> None:
    named = damage(planted)
    found = await all_problems(planted)
    assert any(named in problem for problem in found), (named, found)


async def test_many_objects_of_strangers_are_counted(planted: Planted) -> None:
    for at in range(STRANGERS + 3):
        (planted.folder / "job" / f"x{at}").write_bytes(b"")
    found = await all_problems(planted)
    assert len(found) == STRANGERS + 1
    assert found[-1].endswith("job: 3 others are no objects of an archive")


class TestHarmless:
    """Things that no restore needs, so `verify` is silent."""

    async def test_the_notes_of_the_last_sweep(self, planted: Planted) -> None:
        """They cost a day: the keeper begins anew."""
        (planted.folder / "job" / "unnamed").write_bytes(b"damaged")
        assert await all_problems(planted) == []
        await Keeper(Bucket(str(planted.folder)), retention_of("newest=2")).keep("job")
        assert (planted.folder / "job" / "unnamed").read_bytes() == b"{}"

    async def test_a_claim_of_another_cluster(self, planted: Planted) -> None:
        """The batches are whole. A manager that may not write says so."""
        bucket = Bucket(str(planted.folder))
        await claim(bucket, "job", "another", force=True)
        assert await all_problems(planted) == []
        with pytest.raises(ConflictError, match="another cluster, another"):
            await claim(bucket, "job", "cluster")

    async def test_a_pack_without_a_name(self, planted: Planted) -> None:
        """Of an upload that was broken off. The keeper deletes it after a day."""
        planted.pack("ab" * 32).write_bytes(b"x")
        assert await all_problems(planted) == []
        await Keeper(Bucket(str(planted.folder)), retention_of("newest=2")).keep("job")
        assert "ab" * 32 in (planted.folder / "job" / "unnamed").read_text()

    async def test_an_unfinished_write(self, planted: Planted) -> None:
        """It is in no listing, and its name is written anew."""
        Path(f"{planted.file_pack}#1").write_bytes(b"x")
        assert await all_problems(planted) == []

    async def test_a_pack_that_was_moved_and_linked(self, planted: Planted, tmp_path: Path) -> None:
        """Its bytes are there, and are compared."""
        pack = planted.file_pack
        pack.symlink_to(shutil.move(pack, tmp_path / "elsewhere"))
        assert await all_problems(planted) == []

    async def test_no_query_checkpoint(self, planted: Planted) -> None:
        """The driver did not send it. The state is whole; a restore of the checkpoint is refused with the reason."""
        planted.change(checkpoint=())
        assert await all_problems(planted) == []
