"""The handover manager over real gRPC, beside the real replication manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from rhino.client.overview import fetch_overview
from rhino_core import failpoints
from rhino_core.ids import GroupId
from rhino_core.version import PROTOCOL
from rhino_pb import handover_pb2 as pb
from rhino_pb import replication_pb2
from tests.handover_manager.cluster import STATE_BYTES, TIMEOUT_S, FakeDriver, eventually, until
from tests.handover_manager.support.service import G0, G1, JOB, Request, Scene

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "journal")
    await made.open()
    yield made
    await made.close()


async def owned_by(scene: Scene, group: GroupId, worker: str) -> None:
    async def owned() -> bool:
        return await scene.owner(group) == worker

    await eventually(owned, f"{worker} owns {group}")


async def test_to_a_worker_without_a_copy_until_confirmed(scene: Scene) -> None:
    target = scene.stranger(0)
    scene.sidecars[target].catches_up = False
    await scene.run_batch()
    started = await scene.start(target, "0/0")
    (move,) = started.plan.steps[0].moves
    assert (started.phase, move.bytes_to_move) == (pb.HANDOVER_PHASE_PREPARING, STATE_BYTES)
    assert move.kind == pb.MOVE_KIND_DIRECT
    watching = asyncio.create_task(scene.watch(started.handover_id))
    await until(lambda: G0 in scene.sidecars[target].groups, "the target is a member")
    assert scene.driver.hosts(JOB, 0)[0] == "host-w1"
    scene.sidecars[target].catch_up()
    await until(lambda: scene.driver.hosts(JOB, 0)[0] == f"host-{target}", "the marker")
    await scene.run_batch(p0="w1")  # the one that was running
    await scene.run_batch()
    statuses = await watching
    assert [s.phase for s in statuses][-2:] == [pb.HANDOVER_PHASE_MARKED, pb.HANDOVER_PHASE_CONFIRMED]
    last = statuses[-1]
    assert (last.confirmed_batch_id, last.bytes_moved, last.reason) == (2, STATE_BYTES, "")
    assert 0 < last.started_ms <= last.marked_ms <= last.finished_ms
    await owned_by(scene, G0, target)
    assert await scene.owner(G1) == "w1"
    node = (await scene.job()).virtual_nodes[0]
    assert (node.desired_worker, node.actual_worker, node.misses) == (target, target, 0)


async def test_every_failpoint_of_a_handover_is_reached(scene: Scene) -> None:
    """Real processes die at them in tests/crashes."""
    points = {name for name in failpoints.NAMES if name.startswith("handover.")}
    with failpoints.recording() as reached:
        target = scene.stranger(0)
        await scene.run_batch()
        started = await scene.start(target, "0/0")
        await until(lambda: scene.driver.hosts(JOB, 0)[0] == f"host-{target}", "the marker")
        await scene.run_batch()
        assert (await scene.watch(started.handover_id))[-1].phase == pb.HANDOVER_PHASE_CONFIRMED
        await owned_by(scene, G0, target)
        scene.sidecars[scene.stranger(1)].catches_up = False
        late = await scene.start(scene.stranger(1), "0/1", deadline_s=0.5)
        assert (await scene.watch(late.handover_id))[-1].phase == pb.HANDOVER_PHASE_ROLLED_BACK
        await until(lambda: points <= reached, "all points")


async def test_to_a_replica_moves_no_bytes(scene: Scene) -> None:
    target = scene.secondary(0)
    started = await scene.start(target, "0/0")
    assert started.plan.steps[0].moves[0].kind == pb.MOVE_KIND_CHECKPOINT_ASSISTED
    await until(lambda: scene.driver.hosts(JOB, 0)[0] == f"host-{target}", "the marker")
    await scene.run_batch()
    last = (await scene.watch(started.handover_id))[-1]
    assert (last.phase, last.bytes_moved) == (pb.HANDOVER_PHASE_CONFIRMED, 0)
    await owned_by(scene, G0, target)
    listed = await scene.stub.ListHandovers(pb.ListHandoversRequest(job="clicks"), timeout=TIMEOUT_S)
    assert [h.handover_id for h in listed.handovers] == [started.handover_id]


async def refused(call: Awaitable[object], code: grpc.StatusCode) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is code, caught.value.details()
    assert caught.value.details()


async def test_refusals_have_distinct_codes(scene: Scene) -> None:
    def plan(job: str = JOB, nodes: tuple[str, ...] = ("0/0",), to: str = "w2") -> Awaitable[object]:
        return scene.stub.PlanHandover(Request(job=job, virtual_nodes=nodes, target=to), timeout=TIMEOUT_S)

    target, code = scene.stranger(0), grpc.StatusCode
    await refused(plan(job="nobody"), code.NOT_FOUND)
    await refused(plan(nodes=("0/9",)), code.NOT_FOUND)
    await refused(plan(to="w9"), code.NOT_FOUND)
    await refused(plan(nodes=("0:1",)), code.INVALID_ARGUMENT)
    await refused(plan(to="w1"), code.ALREADY_EXISTS)
    scene.sidecars[target].catches_up = False
    await scene.set_free_bytes(target, STATE_BYTES - 1)
    await refused(plan(to=target), code.RESOURCE_EXHAUSTED)
    await scene.set_free_bytes(target, STATE_BYTES)
    started = await scene.start(target, "0/0")
    await refused(plan(to=scene.secondary(0)), code.ABORTED)
    cancelled = await scene.stub.CancelHandover(
        pb.CancelHandoverRequest(handover_id=started.handover_id), timeout=TIMEOUT_S
    )
    assert cancelled.phase == pb.HANDOVER_PHASE_CANCELLED
    again = scene.stub.CancelHandover(pb.CancelHandoverRequest(handover_id=started.handover_id), timeout=TIMEOUT_S)
    await refused(again, code.FAILED_PRECONDITION)
    watch = scene.stub.CancelHandover(pb.CancelHandoverRequest(handover_id="none"), timeout=TIMEOUT_S)
    await refused(watch, code.NOT_FOUND)
    await scene.sidecars[target].stop()
    await scene.reported(target, lambda w: w.state != replication_pb2.WORKER_STATE_LIVE)
    await refused(plan(to=target), code.UNAVAILABLE)


async def test_rolled_back_at_the_deadline(scene: Scene) -> None:
    scene.sidecars[scene.stranger(0)].catches_up = False
    started = await scene.start(scene.stranger(0), "0/0", deadline_s=0.5)
    last = (await scene.watch(started.handover_id))[-1]
    assert last.phase == pb.HANDOVER_PHASE_ROLLED_BACK
    assert "0/0 not prepared" in last.reason

    async def left() -> bool:
        return scene.stranger(0) not in await scene.members(G0)

    await eventually(left, "the target has left the chain")
    assert scene.driver.hosts(JOB, 0)[0] == "host-w1"


async def test_a_lost_worker_moves_desired_locations(scene: Scene) -> None:
    heir, before = scene.secondary(0), scene.driver.maps[JOB].configuration_epoch
    await scene.sidecars.pop("w1").stop()
    await until(lambda: scene.driver.hosts(JOB, 0)[0] == f"host-{heir}", "0/0 is desired on its secondary")
    await until(lambda: scene.driver.hosts(JOB, 1)[0] != "host-w1", "0/1 is desired elsewhere")
    assert scene.driver.maps[JOB].configuration_epoch > before


async def test_a_target_lost_after_the_marker(scene: Scene) -> None:
    target = scene.secondary(0)
    started = await scene.start(target, "0/0")
    await until(lambda: scene.driver.hosts(JOB, 0)[0] == f"host-{target}", "the marker")
    await scene.sidecars.pop(target).stop()
    last = (await scene.watch(started.handover_id))[-1]
    assert (last.phase, "redirected 0/0 to w1" in last.reason) == (pb.HANDOVER_PHASE_REDIRECTED, True)
    await until(lambda: scene.driver.hosts(JOB, 0)[0] == "host-w1", "w1 is desired again")


async def test_restart_of_the_manager(scene: Scene) -> None:
    target, other = scene.secondary(0), scene.stranger(1)
    scene.sidecars[other].catches_up = False
    preparing = await scene.start(other, "0/1")
    marked = await scene.start(target, "0/0")
    await until(lambda: scene.driver.hosts(JOB, 0)[0] == f"host-{target}", "the marker")
    epoch, generation = scene.driver.maps[JOB].configuration_epoch, scene.driver.maps[JOB].generation
    await scene.driver.stop()
    await scene.manager.stop()
    await scene.manager.start()
    scene.driver = FakeDriver(scene.manager.address)
    assert await scene.driver.hello() > generation
    await scene.driver.started(JOB, 2, name="clicks", run_id="run-1")
    await until(lambda: scene.driver.hosts(JOB, 0)[:1] == [f"host-{target}"], "the map is asserted again")
    assert scene.driver.hosts(JOB, 1)[0] == "host-w1"
    assert scene.driver.maps[JOB].configuration_epoch >= epoch
    assert (await scene.watch(preparing.handover_id))[-1].phase == pb.HANDOVER_PHASE_ROLLED_BACK
    await scene.run_batch()
    assert (await scene.watch(marked.handover_id))[-1].phase == pb.HANDOVER_PHASE_CONFIRMED
    await owned_by(scene, G0, target)


async def test_a_driver_that_needs_more_workers_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handover_manager.service.service.WORKERS_WAIT_S", 0.3)
    driver = FakeDriver(scene.manager.address, factor=3)
    with pytest.raises(grpc.aio.AioRpcError, match=r"needs 4 live workers, 3 are live: w1, w2, w3") as caught:
        await driver.hello()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await driver.stop()


async def test_a_driver_starts_while_a_worker_is_down(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.sidecars.pop("w3").stop()

    async def down() -> bool:
        overview = await asyncio.to_thread(fetch_overview, scene.manager.address)
        return next(w.state for w in overview.workers if w.worker_id == "w3") == "lost"

    await eventually(down, "w3 is known to be down")
    await until(lambda: scene.driver.lost == ["w3"], "the other driver hears of it")
    driver = FakeDriver(scene.manager.address, factor=2)
    await driver.hello()
    await until(lambda: driver.lost == ["w3"], "and this one, at its start")
    await driver.stop()
    assert "replication factor 2 needs 3 live workers, 2 are live: w1, w2" in caplog.text


async def test_the_version_of_a_driver_is_known_while_it_is_connected(scene: Scene) -> None:
    assert (await scene.job()).rhino_version == "", "an earlier driver does not report it"
    await scene.driver.stop()
    scene.driver = FakeDriver(scene.manager.address)
    await scene.driver.hello(protocol=PROTOCOL, rhino_version="1.2.3")
    await scene.driver.started(JOB, 2, name="clicks")

    async def reported(version: str) -> bool:
        return (await scene.job()).rhino_version == version

    await eventually(lambda: reported("1.2.3"), "the new driver's version")
    overview = await asyncio.to_thread(fetch_overview, scene.manager.address)
    assert [(job.application_id, job.rhino_version) for job in overview.jobs] == [("app", "1.2.3")]
    await scene.driver.stop()
    await eventually(lambda: reported(""), "no driver, so no version")


async def test_a_driver_two_protocol_versions_away_is_refused_with_both_named(scene: Scene) -> None:
    for away in (PROTOCOL - 1, PROTOCOL + 1):
        driver = FakeDriver(scene.manager.address)
        await driver.hello(protocol=away)
        await driver.stop()
    driver = FakeDriver(scene.manager.address)
    expected = f"driver 'app' speaks version {PROTOCOL + 2} of Rhino's protocol, the manager version {PROTOCOL}"
    with pytest.raises(grpc.aio.AioRpcError, match=f"{expected}.*: upgrade the manager") as caught:
        await driver.hello(protocol=PROTOCOL + 2)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await driver.stop()


async def test_a_session_begins_with_hello_and_ends_with_the_driver(scene: Scene) -> None:
    driver = FakeDriver(scene.manager.address)
    await driver.started("other", 1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await driver._call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await driver.stop()
    assert (await scene.job()).connected
    await scene.driver.stop()

    async def disconnected() -> bool:
        return not (await scene.job()).connected

    await eventually(disconnected, "the job is without a driver")


async def test_two_jobs_of_two_drivers(scene: Scene) -> None:
    other = FakeDriver(scene.manager.address)
    await other.hello()
    await other.started("job-b", 1, name="views")
    await scene.sidecars["w3"].own(GroupId("job-b", 0, 0))
    await until(lambda: other.hosts("job-b", 0)[:1] == ["host-w3"], "w3 is desired for job-b")
    assert JOB not in other.maps
    assert "job-b" not in scene.driver.maps
    await other.stop()
