"""WatchLoad: each accepted batch, with the load of its tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from handover_manager.events import BatchLogged
from handover_manager.plan.work import Work
from handover_manager.queries.desired_map import DesiredMap
from handover_manager.queries.job import Job
from handover_manager.service.loads import UNREAD_MAX, Loads
from handover_manager.view import ClusterView
from rhino import BatchLoad, HandoverClient
from rhino_core.errors import UnavailableError, UnknownError
from rhino_core.ids import VirtualNode
from rhino_model.loads import SourceLag
from tests.handover_manager import cluster
from tests.handover_manager.support.service import JOB, Scene

pytestmark = pytest.mark.timeout(120)


async def test_a_program_sees_the_load_of_each_batch_until_the_manager_ends(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "journal")
    await scene.open()
    seen: list[BatchLoad] = []
    with HandoverClient(scene.manager.address) as client:
        with pytest.raises(UnknownError, match="elsewhere"):
            await asyncio.to_thread(lambda: next(client.watch_load("elsewhere")))

        def follow() -> None:
            for load in client.watch_load("clicks"):
                seen.append(load)

        following = asyncio.create_task(asyncio.to_thread(follow))
        writers = dict.fromkeys((0, 1), scene.sidecars["w1"])
        measured = cluster.BatchLoad({0: 1.5, 1: 0.5}, rows=70, batch_s=2.0, trigger_s=5.0, lags={"topic": (90, 70)})
        batch = 0
        while len(seen) < 2 and not following.done():  # the first ones may be logged before the call has arrived
            await scene.driver.logged(JOB, batch, writers, load=measured)
            await scene.driver.logged(JOB, batch, writers, run_id="run-0", load=measured)
            batch += 1
            await asyncio.sleep(0.02)
        await scene.close()
        with pytest.raises(UnavailableError):
            await following
    one, two = seen[:2]
    assert two.batch_id == one.batch_id + 1
    assert (one.job, one.name, one.run_id) == (JOB, "clicks", "run-1")
    assert (one.input_rows, one.batch_s, one.trigger_s, one.skipped) == (70, 2.0, 5.0, 0)
    assert one.lags == (SourceLag("topic", "offsets", 90.0, 70.0),)
    nodes = [(node.virtual_node, node.desired_worker, node.task_s) for node in one.virtual_nodes]
    assert nodes == [("0/0", "w1", 1.5), ("0/1", "w1", 0.5)]
    assert (one.workers, one.imbalance) == (3, 3.0)


async def test_a_slow_caller_misses_the_oldest_batches_and_is_told() -> None:
    loads = Loads()
    job = Job("q", DesiredMap("q"))
    node = VirtualNode("q", 0, 0)
    slow, other = loads.watch("q"), loads.watch("elsewhere")
    first, never = asyncio.create_task(anext(slow)), asyncio.create_task(anext(other))
    await asyncio.sleep(0)
    for batch in range(UNREAD_MAX + 4):
        loads.announce(BatchLogged(1, "q", "run", batch, (), {node: Work(None, 0.1)}), job, ClusterView())
    got = await first
    assert (got.batch_id, got.skipped) == (4, 4)
    assert not got.virtual_nodes[0].HasField("rows")
    assert ((await anext(slow)).batch_id, (await anext(slow)).skipped) == (5, 0)
    assert not never.done()
    never.cancel()
    await asyncio.gather(never, return_exceptions=True)
    await slow.aclose()
    await other.aclose()
    assert not loads._callers
