"""The part of a plan that the budget of an hour allows."""

from __future__ import annotations

import pytest

from handover_manager.adapt.budget import Left
from handover_manager.adapt.goal import Goal
from handover_manager.adapt.plans import part_of
from rhino_core.ids import VirtualNode
from rhino_model.handovers import Move, MoveKind, Plan, PlannedStep

PLENTY = 1 << 40


def node(partition: int) -> VirtualNode:
    return VirtualNode("job", 0, partition)


LOADS = {node(0): 5.0, node(1): 4.0, node(2): 3.0, node(3): 6.0, node(4): 1.0}
DESIRED = {node(0): "a", node(1): "a", node(2): "a", node(3): "b", node(4): "c"}
GOAL = Goal(0.2, LOADS, DESIRED, ("a", "b", "c"), (1.9, 1.9, 1.9), LOADS)


def move(partition: int, target: str, size: int = 10) -> Move:
    return Move(node(partition), (0,), DESIRED[node(partition)], target, MoveKind.DIRECT, size, size)


PLAN = Plan((PlannedStep((move(2, "c"), move(0, "c"))), PlannedStep((move(3, "c"),))))


@pytest.mark.parametrize(
    ("left", "partitions"),
    [
        (Left(PLENTY, 3), [2, 0, 3]),
        (Left(PLENTY, 1), [0]),  # the heaviest of the busiest worker
        (Left(PLENTY, 2), [2, 0]),  # after that a has 7, and b 6
        (Left(10, 3), [0]),
        (Left(9, 3), None),
        (Left(PLENTY, 0), None),
    ],
)
def test_the_busiest_worker_comes_first(left: Left, partitions: list[int] | None) -> None:
    part = part_of(PLAN, GOAL, left)
    assert (part and [one.node.partition for one in part.moves]) == partitions


def test_a_move_for_which_too_few_bytes_are_left_makes_room_for_smaller_ones() -> None:
    part = part_of(Plan((PlannedStep((move(0, "c", 500), move(2, "c", 20))),)), GOAL, Left(100, 5))
    assert part is not None
    assert [one.node.partition for one in part.moves] == [2]


def test_steps_stay_apart() -> None:
    part = part_of(PLAN, GOAL, Left(PLENTY, 3))
    assert part is not None
    assert [len(step.moves) for step in part.steps] == [2, 1]
