"""The memory of uploads ends before the archive may delete them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rhino_archive.bucket import Bucket
from rhino_archive.claims import claim
from rhino_archive.manifest import ArchivedFile, Extent
from tests.worker_runtime.scenario import STORE, sst
from worker_runtime.archiving.known import OWN_S, UNASKED_S, Known
from worker_runtime.protocol.versions.closure import Catalogue

PLACE = (Extent("ab" * 32, 16, 10),)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_an_upload_without_a_manifest_counts_for_some_hours_and_while_the_file_is_here(tmp_path: Path) -> None:
    here, clock, bucket = Catalogue(), Clock(), Bucket(str(tmp_path))
    known = Known(here, clock)

    await claim(bucket, "job", "cluster")

    async def places() -> list[tuple[Extent, ...] | None]:
        await known.refresh(bucket, "job", (), [STORE.group])
        return [known.store(STORE).find(sst(number)) for number in (1, 2)]

    assert await places() == [None, None]
    for number in (1, 2):
        here.add(sst(number))
        known.uploaded(ArchivedFile(sst(number), PLACE), clock.now + number - 1)
    assert await places() == [PLACE, PLACE]
    clock.now += OWN_S
    assert await places() == [None, PLACE]
    here.discard(STORE, sst(2).name)
    assert await places() == [None, None]


async def test_a_group_is_forgotten_when_nobody_archives_it_here(tmp_path: Path) -> None:
    clock = Clock()
    known = Known(Catalogue(), clock)
    bucket = Bucket(str(tmp_path))
    await claim(bucket, "job", "cluster")
    await known.refresh(bucket, "job", (), [STORE.group])
    clock.now += UNASKED_S - 1
    assert known.used()
    clock.now += 1
    assert not known.used()


async def test_a_job_counts_as_used_from_its_first_request_on(tmp_path: Path) -> None:
    known, bucket = Known(Catalogue(), Clock()), Bucket(str(tmp_path))
    await claim(bucket, "job", "cluster")
    refreshing = asyncio.create_task(known.refresh(bucket, "job", (), [STORE.group]))
    await asyncio.sleep(0)
    assert known.used(), "an order for another job would forget what this one uploads"
    await refreshing
