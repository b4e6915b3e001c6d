"""Two drivers that run the same job, over real gRPC: a copy of a checkpoint takes no state from the original."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rhino.client.query_record import move_checkpoint
from rhino_core.errors import PreconditionError
from rhino_core.ids import StoreId, StoreVersion, Version
from rhino_pb import replication_pb2
from tests.handover_manager.cluster import TIMEOUT_S, FakeDriver, until
from tests.handover_manager.support.service import JOB, Scene

pytestmark = pytest.mark.timeout(60)
HOME, COPY = "file:/ckpt/q", "file:/ckpt/copy"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "journal")
    await made.open()
    yield made
    await made.close()


def versions(number: int) -> list[StoreVersion]:
    return [StoreVersion(StoreId(JOB, 0, p, "default"), Version(number, f"x{number}-{p}")) for p in (0, 1)]


async def logged(scene: Scene) -> list[int]:
    """Numbers of the newest logged versions, as the replication manager knows them."""
    reply = await scene.replication.DescribeGroups(replication_pb2.DescribeGroupsRequest(job=JOB), timeout=TIMEOUT_S)
    return sorted({v.version.version for group in reply.groups for v in group.logged})


async def second(scene: Scene, **arguments: object) -> FakeDriver:
    driver = FakeDriver(scene.manager.address, **arguments)  # type: ignore[arg-type]
    await driver.hello()
    return driver


async def test_a_second_driver_is_refused_and_what_it_reports_is_not_published(scene: Scene) -> None:
    other = await second(scene)
    await other.started(JOB, 2, run_id="run-2")
    await until(lambda: other.refused, "the second driver is refused")
    assert (scene.driver.probes, scene.driver.refused) == (1, [])
    (refused,) = other.refused
    assert (refused.job, refused.run_id) == (JOB, "run-2")
    assert f"job {JOB} (clicks) is run by driver app on host driver-host since 20" in refused.reason
    await other.report(JOB, 1000, versions(1001), "run-2")
    await other.report(JOB, 1000, versions(1001), "run-1")
    await scene.run_batch()
    await until_logged(scene, [1])
    assert (await scene.job()).run_id == "run-1"
    await other.stop()


async def until_logged(scene: Scene, expected: list[int]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while await logged(scene) != expected:  # noqa: ASYNC110  there is no notification
            await asyncio.sleep(0.02)


async def test_a_driver_whose_session_breaks_is_succeeded_at_once(scene: Scene) -> None:
    silent = await second(scene, answers=False, former_token=scene.driver.token)
    await silent.started(JOB, 2, run_id="run-2")
    await until(lambda: silent.hosts(JOB, 0), "its next session takes the place of the former one")
    assert silent.probes == 0
    other = await second(scene)
    await other.started(JOB, 2, run_id="run-3")
    await until(lambda: silent.probes, "the first one is asked")
    assert (other.refused, JOB in other.maps) == ([], False)
    await silent.stop()
    await until(lambda: other.hosts(JOB, 0), "the second one has the job")
    assert (await scene.job()).run_id == "run-3"
    await other.stop()


async def test_a_copy_is_refused_until_the_user_says_that_it_was_moved(scene: Scene) -> None:
    await scene.driver.started(JOB, 2, name="clicks", location=HOME)
    other = await second(scene)
    await other.started(JOB, 2, run_id="run-2", location=COPY)
    await until(lambda: other.refused, "a copy is refused")
    assert f"whose checkpoint is {HOME}" in other.refused[0].reason
    address = scene.manager.address
    with pytest.raises(PreconditionError, match="stop the query first"):
        await asyncio.to_thread(move_checkpoint, address, "clicks", COPY)
    await scene.driver.stop()
    async with asyncio.timeout(TIMEOUT_S):
        while (await scene.job()).connected:  # noqa: ASYNC110  there is no notification
            await asyncio.sleep(0.02)
    moved = await asyncio.to_thread(move_checkpoint, address, "clicks", f"{COPY}/")
    assert (moved.job, moved.location) == (JOB, COPY)
    await other.started(JOB, 2, run_id="run-3", location=COPY)
    await until(lambda: other.hosts(JOB, 0), "the moved checkpoint is taken")
    assert (await scene.job()).location == COPY
    await other.stop()
