"""Adaptation by rows, bytes and count: only while time is within its band, and never at its cost."""

from __future__ import annotations

import dataclasses

import pytest

from handover_manager.adapt.policy import Mode, Policy
from rhino_model.decisions import Decision, Outcome
from rhino_model.intents import Weight
from workloads.adaptation.world import ACT, World

ENOUGH = 60  # batches in which adaptation can see, act and verify
MIB = 1 << 20


def heavy(partition: int) -> int:
    """The state of the first of four workers is nine times as large."""
    return (288 if partition % 4 == 0 else 32) * MIB


def even(partition: int, at: float) -> float:
    return 1.0


def world(policy: Policy = ACT, **more: object) -> World:
    given: dict[str, object] = {"load": even, "sizes": heavy, **more}
    return World(4, 16, policy=policy, **given)  # type: ignore[arg-type]


def by(made: World, goal: str, *outcomes: Outcome) -> list[Decision]:
    return [one for one in made.decisions(*outcomes) if one.goal == goal]


def test_bytes_are_balanced_while_time_stays_as_it_is() -> None:
    made = world()
    assert made.balance(Weight.BYTES) > 2.5
    made.run(ENOUGH)
    (moving,) = by(made, "bytes", Outcome.MOVING)
    assert made.balance(Weight.BYTES) <= 1 + ACT.bytes_band
    assert made.balance(Weight.TIME) <= 1 + ACT.band / 2
    assert (moving.measured, moving.gain_s) == (3.0, None)
    assert f"lower the imbalance of bytes from 3.00 to {moving.planned:.2f}" in moving.why
    assert [one.handover_id for one in by(made, "bytes", Outcome.HELPED)] == [moving.handover_id]
    assert (made.decisions()[-1].outcome, made.decisions()[-1].goal) == (Outcome.BALANCED, "time")


def test_rows_are_balanced_if_they_are_counted() -> None:
    made = world(sizes=lambda partition: MIB, keys=lambda partition: 900_000 if partition % 4 == 0 else 100_000)
    made.run(ENOUGH)
    assert by(made, "rows", Outcome.HELPED)
    assert made.balance(Weight.ROWS) <= 1 + ACT.rows_band


def test_rows_are_no_goal_while_one_virtual_node_does_not_count_them() -> None:
    made = world(sizes=lambda partition: MIB, keys=lambda partition: None if partition == 5 else partition * 100_000)
    made.run(ENOUGH)
    assert not by(made, "rows")
    assert not made.moved


def test_a_worker_with_too_many_idle_virtual_nodes_gives_some_away() -> None:
    """Ten of sixteen are on w0. Eight of them have next to no load, so by time it does not matter."""
    made = world(load=lambda partition, at: 0.01 if partition in range(4, 12) else 1.0, sizes=lambda partition: 100)
    crowd(made, range(4, 12))
    made.run(2 * ENOUGH)
    assert by(made, "count", Outcome.HELPED)
    assert made.balance(Weight.COUNT) <= 1 + ACT.count_band
    assert made.balance(Weight.TIME) <= 1 + ACT.band


def crowd(made: World, partitions: range) -> None:
    """A user moves these to w0."""
    names = [f"0/{p}" for p in partitions if made.desired[p] != "w0"]
    made.play.start("w0", *names)
    made._carry_out(made.play.effects)
    made.run(2)
    assert {made.desired[p] for p in partitions} == {"w0"}


def test_time_comes_first_and_bytes_wait_until_it_is_within_its_band() -> None:
    made = world(load=lambda partition, at: 4.0 if partition % 4 == 1 else 1.0)
    made.run(2 * ENOUGH)
    goals = [one.goal for one in made.decisions(Outcome.MOVING)]
    assert goals == ["time", "bytes"]
    assert made.balance(Weight.TIME) <= 1 + ACT.band
    assert made.balance(Weight.BYTES) <= 1 + ACT.bytes_band


def test_bytes_that_only_a_break_of_time_would_balance_stay() -> None:
    """Whatever leaves the worker with much state has much work, too."""
    made = World(2, 3, lambda p, at: 2.0 if p == 1 else 1.0, ACT, sizes=lambda p: (10 if p == 1 else 300) * MIB)
    made.run(ENOUGH)
    assert made.balance(Weight.BYTES) > 1 + ACT.bytes_band
    assert not made.moved
    assert {one.outcome for one in by(made, "bytes")} == {Outcome.NOTHING_BETTER}


def test_little_state_is_no_reason_to_move() -> None:
    made = world(sizes=lambda partition: 90_000 if partition % 4 == 0 else 10_000)
    made.run(ENOUGH)
    assert not made.moved


@pytest.mark.parametrize("band", [0.0, 5.0])
def test_a_band_of_zero_leaves_bytes_out_as_a_wide_one_does(band: float) -> None:
    made = world(dataclasses.replace(ACT, bytes_band=band))
    made.run(ENOUGH)
    assert not made.moved
    assert not by(made, "bytes")


def test_observing_names_the_goal_and_moves_nothing() -> None:
    made = world(Policy(mode=Mode.OBSERVE))
    made.run(ENOUGH)
    assert not made.moved
    assert by(made, "bytes", Outcome.WOULD_MOVE)


def test_a_plan_for_bytes_may_not_cost_much() -> None:
    made = world(dataclasses.replace(ACT, horizon_s=20.0))
    made.run(ENOUGH)
    assert not made.moved
    assert by(made, "bytes", Outcome.NOT_WORTH)[-1].cost_s == 5.0


def test_the_budget_and_the_cool_down_are_the_same_for_all_goals() -> None:
    made = world(dataclasses.replace(ACT, hourly_moves=1))
    made.run(ENOUGH)
    assert not made.moved
    assert by(made, "bytes", Outcome.OVER_BUDGET)


def test_moves_for_bytes_that_make_a_worker_slow_go_back() -> None:
    """The first worker that receives state becomes slow: no forecast can know that."""
    made = world()
    start = dict(made.desired)

    def slow(worker: str, at: float) -> float:
        filled = [made.desired[partition] for partition in start if partition % 4 == 0]
        return 3.0 if worker == next((name for name in filled if name != "w0"), None) else 1.0

    made.slow = slow
    made.run(30)
    (returning,) = by(made, "bytes", Outcome.RETURNING)
    assert "task time is beyond its band" in returning.why
    made.run(10)
    assert made.desired == start


@pytest.mark.parametrize("batches", [18, 20, 24, 28])
def test_a_restarted_manager_knows_for_which_goal_it_has_moved(batches: int) -> None:
    made = world()
    made.run(batches)
    made.restart_manager()
    made.run(ENOUGH)
    assert len(by(made, "bytes", Outcome.MOVING)) == 1
    assert len(by(made, "bytes", Outcome.HELPED)) == 1
