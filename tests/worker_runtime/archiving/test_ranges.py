"""Bytes of packs are read ahead, within limits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rhino_archive.bucket import Bucket
from rhino_archive.manifest import Extent, pack_name
from rhino_core.errors import IntegrityError, UnknownError
from worker_runtime.archiving import ranges
from worker_runtime.archiving.ranges import Budget, RangeReader

PACK, OTHER = "ab" * 32, "cd" * 32
CONTENT = os.urandom(1000)
EXTENTS = [Extent(PACK, 16 + 10 * number, 10) for number in range(20)] + [Extent(OTHER, 500, 100)]


@pytest.fixture
async def bucket(tmp_path: Path) -> Bucket:
    made = Bucket(str(tmp_path))
    for name in (PACK, OTHER):
        await made.put(pack_name("job", name), CONTENT)
    return made


@pytest.mark.parametrize("order", [range(21), (3, 7, 20), (20, 0, 5)])
async def test_extents_may_be_left_out_and_come_again(bucket: Bucket, order: list[int]) -> None:
    reader = RangeReader(bucket, "job", EXTENTS)
    for number in order:
        extent = EXTENTS[number]
        assert await reader.read(extent) == CONTENT[extent.offset : extent.offset + extent.size_bytes]
    await reader.close()
    assert bucket.requests["get"] <= 3


async def test_only_so_much_is_read_ahead(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "AHEAD_BYTES", 30)
    apart = [Extent(PACK, 20 * number, 10) for number in range(20)]
    reader = RangeReader(bucket, "job", apart)
    assert reader.memory_bytes == 30
    await reader.read(apart[0])
    assert len(reader._tasks) == 3
    await reader.close()
    assert bucket.requests["get"] <= 3


async def test_a_pack_that_is_short_or_missing_is_named(bucket: Bucket) -> None:
    short, missing = Extent(PACK, 990, 20), Extent("ef" * 32, 0, 1)
    for extent, error in ((short, IntegrityError), (missing, UnknownError)):
        reader = RangeReader(bucket, "job", [extent])
        with pytest.raises(error, match=extent.pack):
            await reader.read(extent)
        await reader.close()


async def test_a_budget_is_shared_in_order() -> None:
    budget, order = Budget(100), list[int]()

    async def take(number: int, size_bytes: int) -> None:
        async with budget.hold(size_bytes):
            order.append(number)
            await asyncio.sleep(0)

    async with budget.hold(60):
        waiting = [asyncio.ensure_future(take(number, size)) for number, size in enumerate((50, 500, 1))]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == [1, 2]
