"""Requests, bytes and age of the archive while a query runs."""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.archive.query import COPIES, Driver, Partition
from benchmarks.archive.store import URL, Store, s3
from benchmarks.cells import Row
from benchmarks.replication.sidecars import Chain, attached, chain
from rhino.client.handover_client import HandoverClient
from rhino_core.errors import UnavailableError

DAY_S = 86_400
# List prices of S3 Standard in us-east-1, in dollars for one request. Deletion is free.
PRICES = {"put": 5e-6, "post": 5e-6, "list": 5e-6, "get": 0.4e-6, "head": 0.4e-6}
KINDS = ("put", "list", "get")


class Mark(NamedTuple):
    """An archived batch has just been seen. `at`: monotonic seconds. `seen`: by the store so far."""

    at: float
    batch: int
    seen: Counter[str]


def measure(folder: Path, workers: int, partitions: int, changelog_bytes: int, seconds: float) -> Row:
    """From the end of one archived batch to that of another one. Raises UnavailableError when the archive fails."""
    with s3() as store, chain(folder / "cluster", workers, options=("--archive", URL)) as members:
        marks, ages, written = uvloop.run(_watch(folder, store, members, (partitions, changelog_bytes), seconds))
    sizes = {"workers": workers, "partitions": partitions, "changelog_bytes": changelog_bytes}
    return sizes | figures(marks, written) | {"age_p50_s": statistics.median(ages), "age_max_s": max(ages)}


def figures(marks: Sequence[Mark], written: Sequence[int]) -> Row:
    """`written`: bytes of state files up to the end of each batch."""
    first, last = marks[0], marks[-1]
    seconds, seen = last.at - first.at, last.seen - first.seen
    uploaded, new = seen.pop("bytes"), written[last.batch] - written[first.batch]
    a_day = Counter({kind: round(count / seconds * DAY_S) for kind, count in seen.items()})
    return {
        "batches": last.batch - first.batch,
        "batch_s": seconds / (last.batch - first.batch),
        "archived_batches": len(marks) - 1,
        **{f"{kind}_a_day": a_day[kind] for kind in KINDS},
        "requests_a_day": a_day.total(),
        "dollars_a_month": 30 * sum(count * PRICES.get(kind, 0) for kind, count in a_day.items()),
        "uploaded_mb": uploaded / 1e6,
        "new_mb": new / 1e6,
        "uploaded_over_new": uploaded / new,
    }


async def _watch(
    folder: Path, store: Store, members: Chain, sizes: tuple[int, int], seconds: float
) -> tuple[list[Mark], list[float], list[int]]:
    """The marks, the age after each batch, and `written` of `figures`. `sizes`: partitions, bytes of a changelog."""
    marks, ages, written = list[Mark](), list[float](), list[int]()
    workers, clock = len(members.sidecars), asyncio.get_running_loop().time
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        sessions = [attached(members.socket_of(number), COPIES - 1, min_copies=COPIES) for number in range(workers)]
        clients = [await stack.enter_async_context(session) for session in sessions]
        parts = [Partition(clients[n % workers], n, sizes[1], folder / f"{n}.sst") for n in range(sizes[0])]
        driver = Driver(members.manager_address, [f"127.0.0.{21 + number}" for number in range(workers)], sizes[0])
        session = tasks.create_task(driver.run())
        manager = stack.enter_context(HandoverClient(members.manager_address))
        while len(marks) < 2 or marks[-1].at < marks[0].at + seconds:
            began = clock()
            await asyncio.gather(*(part.commit() for part in parts))
            driver.log([part.newest for part in parts])
            written.append(sum(part.written_bytes for part in parts))
            for query in (await asyncio.to_thread(manager.archive)).queries:
                if query.error:
                    raise UnavailableError(query.error)
                if marks:
                    ages.append(query.age_s)
                if query.batch_id > (marks[-1].batch if marks else -1):
                    marks.append(Mark(clock(), query.batch_id, await asyncio.to_thread(store.seen)))
            await asyncio.sleep(began + 1 - clock())
        session.cancel()
    return marks, ages, written
