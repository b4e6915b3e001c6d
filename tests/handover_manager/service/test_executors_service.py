"""Maps by worker on the wire, drivers of the former version, and what drivers report of their executors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handover_manager.events import ExecutorChanged, PushLocations
from handover_manager.plan.locations import Location
from handover_manager.service.driver_messages import command_of, executor_changed_of
from rhino_pb import handover_pb2 as pb
from tests.handover_manager.cluster import FakeDriver, until
from tests.handover_manager.service.test_service import JOB, Scene

pytestmark = pytest.mark.timeout(60)
PUSH = PushLocations(
    session=1,
    job=JOB,
    configuration_epoch=3,
    locations=(Location(0, 0, ("w2", "w1")), Location(0, 1, ("w3", "w1")), Location(0, 2, ("w3",))),
    hosts=(("w1", "node-1"), ("w2", "node-2"), ("w3", "")),
)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "journal")
    await made.open()
    yield made
    await made.close()


def test_a_map_names_each_worker_once() -> None:
    made = command_of(PUSH, 7, pb.DriverHello(knows_workers=True)).desired
    assert (made.generation, made.configuration_epoch) == (7, 3)
    assert [(w.worker_id, w.host) for w in made.workers] == [("w1", "node-1"), ("w2", "node-2"), ("w3", "")]
    assert [list(location.worker_indexes) for location in made.locations] == [[1, 0], [2, 0], [2]]
    assert not any(location.hosts for location in made.locations)


def test_a_driver_of_the_former_version_gets_the_hosts_that_are_known() -> None:
    made = command_of(PUSH, 7, pb.DriverHello()).desired
    assert [(location.partition, list(location.hosts)) for location in made.locations] == [
        (0, ["node-2", "node-1"]),
        (1, ["node-1"]),
    ]
    assert not made.workers
    assert not any(location.worker_indexes for location in made.locations)


def test_an_executor_of_the_former_version_has_no_worker() -> None:
    old = pb.ExecutorChanged(executor_id="1", host="node-1")
    assert executor_changed_of(old, 5) == ExecutorChanged(5, "1", "node-1", removed=False, worker_id="")
    new = pb.ExecutorChanged(executor_id="1", host="node-1", worker_id="w1", removed=True)
    assert executor_changed_of(new, 5) == ExecutorChanged(5, "1", "node-1", removed=True, worker_id="w1")


async def test_drivers_of_both_versions_are_served_by_one_manager(scene: Scene) -> None:
    workers = {w.worker_id: w.host for w in scene.driver.maps[JOB].workers}
    assert workers.items() >= {"w1": "host-w1"}.items()
    old = FakeDriver(scene.manager.address, factor=1, former_token=scene.driver.token, knows_workers=False)
    await old.hello()
    await old.started(JOB, 2, name="clicks")
    await until(lambda: old.hosts(JOB, 0)[:1] == ["host-w1"], "its map has hosts")
    assert not old.maps[JOB].workers
    await old.stop()
