"""Logged batches reach the replication manager in parts."""

from __future__ import annotations

import asyncio

from handover_manager.events import PublishLogged
from handover_manager.service.publishing import GROUPS_AT_ONCE, Publishing, parts_of
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_core.turns import Turns

STORES = ("left", "right")


def version_of(partition: int, store: str, number: int) -> StoreVersion:
    return StoreVersion(StoreId("job", 0, partition, store), Version(number, "id"))


def batch_of(groups: int, number: int = 9) -> PublishLogged:
    """All versions of one store, then those of the other one, as a driver sends them."""
    named = [(partition, store) for store in STORES for partition in range(groups)]
    return PublishLogged(
        "job",
        number - 1,
        tuple(version_of(*name, number) for name in named),
        tuple(version_of(*name, number - 5) for name in named),
    )


def test_a_group_is_in_one_part_with_all_its_versions_and_floors() -> None:
    batch = batch_of(7)
    parts = list(parts_of(batch, 3))
    assert [len(part.versions) for part in parts] == [6, 6, 2]
    for part in parts:
        assert {v.store for v in part.versions} == {floor.store for floor in part.floors}
        assert (part.job, part.batch_id) == (batch.job, batch.batch_id)
    assert sorted(v for part in parts for v in part.versions) == sorted(batch.versions)
    assert sorted(v for part in parts for v in part.floors) == sorted(batch.floors)


def test_a_batch_without_state_is_one_part() -> None:
    batch = PublishLogged("job", 1, (), ())
    assert list(parts_of(batch, 3)) == [batch]


async def test_batches_follow_each_other_and_others_have_their_turn() -> None:
    told, rounds = list[tuple[int, int, int]](), 0

    def publish(part: PublishLogged) -> None:
        told.append((part.batch_id, min(version.store.partition for version in part.versions), rounds))

    publishing = Publishing(publish, Turns())
    running = asyncio.create_task(publishing.run())
    publishing.add(batch_of(GROUPS_AT_ONCE + 1, 4))
    publishing.add(batch_of(GROUPS_AT_ONCE + 1, 5))
    while len(told) < 4:
        await asyncio.sleep(0)
        rounds += 1
    running.cancel()
    assert [(batch, first) for batch, first, _ in told] == [(3, 0), (3, GROUPS_AT_ONCE), (4, 0), (4, GROUPS_AT_ONCE)]
    assert len({number for _, _, number in told}) == 4, "each part in a round of its own"
