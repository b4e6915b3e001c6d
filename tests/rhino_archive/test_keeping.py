"""The keeper deletes old batches, and packs a day after their last name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rhino_archive import keeping
from rhino_archive.bucket import Bucket
from rhino_archive.keeping import UNNAMED, Keeper
from rhino_archive.manifest import Extent, Manifest, Part, manifest_bytes, pack_name
from rhino_archive.retention import GRACE_MS, Retention
from rhino_core.errors import IntegrityError, UnknownError
from rhino_core.ids import GroupId

PACKS = [f"{number:064x}" for number in range(4)]
DAY_S = 86_400


class Archive:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bucket = Bucket(str(folder))
        self.keeper = Keeper(self.bucket, Retention(newest=2, hourly=0, daily=0))

    async def batch(self, number: int, *packs: str) -> Path:
        """Written `number` days after the first."""
        for pack in packs:
            await self.bucket.put(pack_name("job", pack), b"pack")
        part = Part(Extent(packs[0], 0, 1), 0, (GroupId("job", 0, 0),), packs)
        manifest = Manifest("job", number, 0, 0, "c", "q", "/l", "d", (part,))
        await self.bucket.put(manifest.name, manifest_bytes(manifest))
        path = self.folder / manifest.name
        os.utime(path, (number * DAY_S, number * DAY_S))
        return path

    async def keep(self, day: float) -> None:
        """That many days after the first batch."""
        await self.keeper.keep("job")
        os.utime(self.folder / "job" / UNNAMED, (day * DAY_S, day * DAY_S))

    def unnamed(self) -> object:
        return json.loads((self.folder / "job" / UNNAMED).read_text())

    def batches(self) -> list[int]:
        return sorted(int(path.name.partition("-")[0]) for path in (self.folder / "job" / "batches").iterdir())

    def packs(self) -> set[str]:
        return {path.name for path in (self.folder / "job" / "packs").iterdir()}


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


async def test_old_batches_go_and_their_packs_a_day_later(archive: Archive) -> None:
    await archive.batch(1, PACKS[0], PACKS[1])
    await archive.batch(2, PACKS[1], PACKS[2])
    await archive.batch(3, PACKS[2], PACKS[3])
    await archive.keep(3)
    assert archive.batches() == [2, 3]
    assert archive.packs() == set(PACKS), "a round of uploads may name one that has no name now"
    assert archive.unnamed() == {PACKS[0]: None}
    await archive.keep(4)
    assert archive.unnamed() == {PACKS[0]: 3 * DAY_S * 1000}, "since the sweep that saw it first"
    await archive.batch(4, PACKS[3])
    await archive.keep(5)
    assert (archive.batches(), archive.packs()) == ([3, 4], {PACKS[1], PACKS[2], PACKS[3]})
    assert GRACE_MS == DAY_S * 1000


async def test_a_query_that_has_rested_loses_no_pack_of_its_present_round(archive: Archive) -> None:
    """Its newest batch is days old when the packs of the next one are uploaded."""
    await archive.batch(1, PACKS[0])
    await archive.bucket.put(pack_name("job", PACKS[1]), b"pack")
    await archive.keep(9)
    await archive.batch(9, PACKS[2])
    await archive.keep(9.01)
    await archive.keep(9.02)
    assert PACKS[1] in archive.packs()


async def test_the_newest_batch_stays_after_a_step_of_the_clock(archive: Archive) -> None:
    for number in (7, 8):
        await archive.batch(number, PACKS[number - 6])
    path = await archive.batch(3, PACKS[3])
    await archive.keeper.keep("job", f"job/batches/{path.name}")
    assert archive.batches() == [3, 7, 8]


async def test_a_batch_that_was_written_again_has_its_present_packs(archive: Archive) -> None:
    await archive.batch(1, PACKS[0])
    await archive.keep(1)
    await archive.batch(1, PACKS[1])
    os.utime(archive.folder / "job" / "batches" / f"{1:020d}-d", (DAY_S + 9, DAY_S + 9))
    await archive.keep(2)
    assert archive.unnamed() == {PACKS[0]: None}


async def test_a_batch_that_a_list_still_has_is_no_batch_without_packs(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archive.batch(1, PACKS[0])
    with monkeypatch.context() as gone:

        async def get(name: str) -> bytes:
            raise UnknownError(name)

        gone.setattr(archive.bucket, "get", get)
        await archive.keep(1)
    assert archive.unnamed() == {PACKS[0]: None}
    await archive.keep(2)
    assert archive.unnamed() == {}


async def test_a_sweep_that_has_taken_too_long_deletes_nothing(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        await archive.batch(number, PACKS[number])
    monkeypatch.setattr(keeping, "SWEEP_S_MAX", -1.0)
    await archive.keeper.keep("job")
    assert archive.batches() == [1, 2, 3]
    assert not (archive.folder / "job" / UNNAMED).exists()


async def test_a_damaged_batch_stops_the_deletion(archive: Archive) -> None:
    """Nobody knows its packs."""
    for number in (1, 2, 3):
        path = await archive.batch(number, PACKS[number])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match=r"batches/0+3-d"):
        await archive.keeper.keep("job")
    assert (archive.batches(), len(archive.packs())) == ([1, 2, 3], 3)


async def test_a_query_without_batches_keeps_its_packs(archive: Archive) -> None:
    """The first round of uploads is under way."""
    await archive.bucket.put(pack_name("job", PACKS[0]), b"pack")
    await archive.keeper.keep("job")
    assert archive.packs() == {PACKS[0]}


async def test_a_damaged_note_of_the_last_sweep_costs_a_day(archive: Archive) -> None:
    await archive.batch(1, PACKS[0])
    await archive.bucket.put(pack_name("job", PACKS[1]), b"pack")
    await archive.bucket.put(f"job/{UNNAMED}", b"[1]")
    await archive.keeper.keep("job")
    assert archive.unnamed() == {PACKS[1]: None}
