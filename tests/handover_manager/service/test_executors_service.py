"""Maps on the wire, and what drivers report of their executors."""

from __future__ import annotations

from handover_manager.events import ExecutorChanged, PushLocations
from handover_manager.plan.locations import Location
from handover_manager.service.driver_messages import command_of, executor_changed_of
from rhino_pb import handover_pb2 as pb
from tests.handover_manager.support.service import JOB

PUSH = PushLocations(
    session=1,
    job=JOB,
    configuration_epoch=3,
    locations=(Location(0, 0, ("w2", "w1")), Location(0, 1, ("w3", "w1")), Location(0, 2, ("w3",))),
    hosts=(("w1", "node-1"), ("w2", "node-2"), ("w3", "")),
)


def test_a_map_names_each_worker_once() -> None:
    made = command_of(PUSH, 7).desired
    assert (made.generation, made.configuration_epoch) == (7, 3)
    assert [(w.worker_id, w.host) for w in made.workers] == [("w1", "node-1"), ("w2", "node-2"), ("w3", "")]
    assert [list(location.worker_indexes) for location in made.locations] == [[1, 0], [2, 0], [2]]


def test_an_executor_has_no_worker_until_it_has_reported() -> None:
    old = pb.ExecutorChanged(executor_id="1", host="node-1")
    assert executor_changed_of(old, 5) == ExecutorChanged(5, "1", "node-1", removed=False, worker_id="")
    new = pb.ExecutorChanged(executor_id="1", host="node-1", worker_id="w1", removed=True)
    assert executor_changed_of(new, 5) == ExecutorChanged(5, "1", "node-1", removed=True, worker_id="w1")
