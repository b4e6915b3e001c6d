"""One cluster may write the archive of a query."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim, claimed_by
from rhino_core.errors import ConflictError, IntegrityError
from tests.rhino_archive.support.stores import BUCKET, s3, use


async def test_the_first_gets_it_and_another_is_told(tmp_path: Path) -> None:
    bucket = Bucket(str(tmp_path))
    assert await claimed_by(bucket, "job") is None
    await claim(bucket, "job", "one")
    await claim(bucket, "job", "one")
    with pytest.raises(ConflictError, match=r"another cluster, one.*rhino archive claim --job job"):
        await claim(bucket, "job", "two")
    await claim(bucket, "job", "two", force=True)
    assert await claimed_by(bucket, "job") == "two"
    with pytest.raises(ConflictError, match="another cluster, two"):
        await claim(bucket, "job", "one")


async def test_one_of_many_at_once_gets_it(tmp_path: Path) -> None:
    names = [f"cluster-{number}" for number in range(20)]
    found = await asyncio.gather(*(claim(Bucket(str(tmp_path)), "job", name) for name in names), return_exceptions=True)
    assert [type(error) for error in found].count(ConflictError) == len(names) - 1
    assert await claimed_by(Bucket(str(tmp_path)), "job") == names[found.index(None)]


async def test_one_of_many_gets_it_on_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3() as address:
        use(address, monkeypatch)
        names = [f"cluster-{number}" for number in range(10)]
        claims = (claim(Bucket(f"s3://{BUCKET}/x"), "job", name) for name in names)
        found = await asyncio.gather(*claims, return_exceptions=True)
        assert [type(error) for error in found].count(ConflictError) == len(names) - 1
        assert await claimed_by(Bucket(f"s3://{BUCKET}/x"), "job") == names[found.index(None)]


async def test_damage_is_named(tmp_path: Path) -> None:
    bucket = Bucket(str(tmp_path))
    await bucket.put("job/writer", b"{}")
    with pytest.raises(IntegrityError, match="job/writer is damaged"):
        await claim(bucket, "job", "one")
