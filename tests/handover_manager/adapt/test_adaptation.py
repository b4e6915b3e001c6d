"""Adaptation: what it does about load, what keeps it from acting, and what it does if a plan has not helped."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from handover_manager import events as ev
from handover_manager.adapt.adaptation import BY
from handover_manager.adapt.budget import HOUR_S
from handover_manager.adapt.cool_downs import CoolDown, Frozen
from handover_manager.adapt.policy import Mode, Policy
from handover_manager.adapt.trial import TRIAL_KEY, AdaptationRecord
from handover_manager.adapt.windows import NodeLoad
from handover_manager.queries.history import HANDOVER
from rhino_core.records import encode
from rhino_model.decisions import Outcome
from rhino_model.handovers import Phase
from rhino_model.intents import Request
from tests.handover_manager.support.adaptation import skewed
from tests.nightly import few
from workloads.adaptation.scene import JOB, group
from workloads.adaptation.world import ACT, INTERVAL_S, World

ENOUGH = 60  # batches in which adaptation can see, act and verify


def world(load: object = skewed, policy: Policy = ACT) -> World:
    return World(4, 16, load, policy)  # type: ignore[arg-type]


def test_a_skewed_query_is_balanced_and_the_outcome_is_told_beside_the_prediction() -> None:
    made = world()
    assert made.imbalance > 2
    made.run(ENOUGH)
    assert made.imbalance <= 1 + ACT.band
    (moving,) = made.decisions(Outcome.MOVING)
    (helped,) = made.decisions(Outcome.HELPED)
    assert moving.handover_id == helped.handover_id
    assert moving.gain_s is not None
    assert moving.cost_s is not None
    assert moving.gain_s > moving.cost_s
    assert f"{moving.planned:.2f} was planned" in helped.why
    assert made.decisions()[-1].outcome is Outcome.BALANCED
    handover = made.play.handover(moving.handover_id)
    assert (handover.phase, handover.by) == (Phase.CONFIRMED, BY)
    told = [(action.kind, action.by, action.handover_id) for action in made.play.core.history.all()]
    assert told == [(HANDOVER, BY, moving.handover_id)]


def test_observing_moves_nothing_and_says_what_it_would_do() -> None:
    made = world(policy=Policy(mode=Mode.OBSERVE))
    made.run(ENOUGH)
    assert not made.moved
    (would,) = made.decisions(Outcome.WOULD_MOVE)
    assert len(would.moves) >= 3
    assert would.times > 1, "the same decision is told once"
    assert not made.play.core.handovers.all()


def test_off_means_that_nothing_is_kept() -> None:
    made = world(policy=Policy(mode=Mode.OFF))
    made.run(ENOUGH)
    assert made.decisions() == []


def test_a_peak_of_one_window_moves_nothing() -> None:
    made = world(lambda partition, at: 8.0 if partition == 0 and 60 <= at < 80 else 1.0)
    made.run(ENOUGH)
    assert not made.moved


def test_a_hot_virtual_node_is_named_and_everything_else_moves_away_from_it() -> None:
    made = world(lambda partition, at: 30.0 if partition == 4 else 1.0)
    made.run(ENOUGH)
    hot_worker = made.desired[4]
    assert [p for p, worker in made.desired.items() if worker == hot_worker] == [4]
    assert all(decision.hot == ("0/4",) for decision in made.decisions(Outcome.MOVING))
    assert made.decisions()[-1].outcome is Outcome.NOTHING_BETTER
    assert "0/4 alone exceed a worker's share" in made.decisions()[-1].why


@pytest.mark.parametrize("seed", [0, 5, 20, 43, 55])
def test_a_second_change_is_balanced_by_virtual_nodes_that_may_move(seed: int) -> None:
    """Those that the first plan has moved would be the best ones to move again. Of them, only heavy ones may."""
    random = Random(seed)
    uneven = [random.uniform(0.8, 1.2) * (2.0 if partition % 4 == 0 else 1.0) for partition in range(12)]
    heavy = random.sample(range(12), 3)
    changed = 60 * INTERVAL_S

    def load(partition: int, at: float) -> float:
        return uneven[partition] if at < changed else 3.0 if partition in heavy else 1.0

    made = World(4, 12, load)
    made.run(60)
    origins = {moved.node: moved.origin for moved in made.moved}
    assert origins
    made.run(ENOUGH)
    again = [moved for moved in made.moved[len(origins) :] if moved.node in origins]
    assert {moved.node.partition for moved in again} <= set(heavy)
    assert all(moved.target != origins[moved.node] for moved in again)
    assert made.imbalance <= 1 + ACT.band, made.decisions()[-1].why


def cooling(load: NodeLoad | None, failures: int = 0) -> World:
    """Both virtual nodes of w0 came from w1 a short time ago, with this load. Each has 3 s now, all others 1 s."""
    made = World(3, 6, lambda partition, at: 3.0 if partition in (0, 3) else 1.0)
    frozen = tuple(Frozen(JOB, 0, partition, 600.0, failures, load, ("w1",)) for partition in (0, 3))
    made.play.journal[TRIAL_KEY] = encode(AdaptationRecord(None, frozen))
    made.restart_manager()
    made.run(ENOUGH)
    return made


def test_a_virtual_node_whose_load_has_risen_moves_on_in_its_cool_down_and_never_back() -> None:
    made = cooling(NodeLoad(1.0, 1 / 6))
    assert {moved.target for moved in made.moved if moved.node.partition in (0, 3)} == {"w2"}
    assert made.imbalance <= 1 + ACT.band


@pytest.mark.parametrize(
    ("load", "failures"),
    [
        (NodeLoad(2.5, 1 / 6), 0),  # its time has hardly risen: others have less
        (NodeLoad(1.0, 0.25), 0),  # its share has hardly risen: all have more
        (NodeLoad(1.0, 1 / 6), 1),  # the move before did not help
        (None, 0),  # nothing is known of the load that it had
    ],
)
def test_a_virtual_node_stays_in_its_cool_down(load: NodeLoad | None, failures: int) -> None:
    made = cooling(load, failures)
    assert not made.moved
    assert made.decisions()[-1].outcome is Outcome.COOLING_DOWN
    assert "would move, but moved a short time ago" in made.decisions()[-1].why


def test_a_virtual_node_without_load_does_not_move_on() -> None:
    idle = NodeLoad(0.0, 0.0)
    assert not CoolDown(600.0, load=idle).may_move_on(idle)


@pytest.mark.parametrize("apart", [14, 17])
def test_a_plan_between_two_steps_of_the_load_is_compared_with_the_same_load(apart: int) -> None:
    """The plan answers the first step. The second one makes the imbalance as high as before, or higher."""
    first, second = (batch * INTERVAL_S for batch in (30, 30 + apart))

    def load(partition: int, at: float) -> float:
        heavy = 1.0 if at < first else 2.0 if at < second else 4.0
        return heavy if partition in (0, 4) else 1.0

    made = World(4, 16, load)
    made.run(30 + 2 * ENOUGH)
    helped, _ = made.decisions(Outcome.HELPED)
    later = [decision.outcome for decision in made.decisions()[helped.number :]]
    assert later.index(Outcome.MOVING) <= 1
    assert Outcome.TOO_FEW not in later, "the windows that showed the help count"
    assert "was 1.33, 1.11 was planned, 1." in helped.why
    assert "without the moves" in helped.why
    assert not made.decisions(Outcome.RETURNING)
    assert made.imbalance <= 1 + ACT.band


def joined(made: World, name: str) -> None:
    """Another worker. As `World`, its disk is large."""
    made.cluster.worker(name, free_bytes=1 << 30)
    made.see()


def executor(made: World, name: str, *, known_by_host: bool = False) -> None:
    """The query has an executor on this worker."""
    at = "" if known_by_host else name
    made.play(ev.ExecutorChanged(made.play.session(), name, f"host-{name}", removed=False, worker_id=at))


@pytest.mark.parametrize("known_by_host", [False, True])
def test_a_worker_counts_once_the_query_has_an_executor_there(known_by_host: bool) -> None:
    made = World(3, 12, lambda partition, at: 1.0)
    for number in range(3):
        executor(made, f"w{number}")
    joined(made, "w3")
    made.run(ENOUGH)
    assert not made.moved
    assert made.decisions()[-1].outcome is Outcome.BALANCED
    executor(made, "w3", known_by_host=known_by_host)
    made.run(ENOUGH)
    assert {moved.target for moved in made.moved} == {"w3"}
    assert made.imbalance == 1.0


def test_all_workers_count_while_no_executor_is_known() -> None:
    made = World(3, 12, lambda partition, at: 1.0)
    joined(made, "w3")
    made.run(ENOUGH)
    assert {moved.target for moved in made.moved} == {"w3"}


def test_a_backlog_is_not_load() -> None:
    made = world()
    made.rows = lambda at: 10_000 if at > 46 else 1_000
    made.run(14)
    assert [decision.outcome for decision in made.decisions()][-1] is Outcome.CATCHING_UP
    assert not made.moved


def test_nothing_moves_while_copies_are_missing() -> None:
    made = world()
    made.cluster.chain(group(0, 3), "w3 w0?")
    made.run(ENOUGH)
    assert not made.moved
    assert made.decisions()[-1].outcome is Outcome.RECOVERING


def test_nothing_moves_beside_a_drain_or_a_handover_of_a_user() -> None:
    made = world()
    made.cluster.worker("w3", free_bytes=1 << 30, draining=True)
    made.run(ENOUGH)
    assert not made.moved
    assert "w3 is being drained" in made.decisions()[-1].why
    made.cluster.worker("w3", free_bytes=1 << 30)
    made.play(ev.HandoverRequested("users", Request(JOB, ("0/0",), "w2", 1e6)))
    made.see()
    assert made.play.handover("users").phase is not Phase.CONFIRMED
    made.run(ENOUGH)
    assert "handover users is under way" in made.decisions(Outcome.BUSY)[-1].why


@pytest.mark.parametrize("taken_away", [False, True])
def test_a_drained_worker_hinders_nothing_any_more(taken_away: bool) -> None:
    """It stays marked as draining, whether it is still there or was taken away."""
    made = world()
    made.cluster.worker("w4", free_bytes=1 << 30, draining=True, reachable=not taken_away, live=not taken_away)
    made.see()
    made.run(ENOUGH)
    assert {decision.outcome for decision in made.decisions()} & {Outcome.HELPED}
    assert "w4" not in {moved.target for moved in made.moved}


def test_what_did_not_help_goes_back_and_stays_longer_each_time() -> None:
    """The machine, not the virtual nodes, makes w0 slow, and whatever leaves it makes another one slow."""
    made = world(lambda partition, at: 1.0)

    def slow(worker: str, at: float) -> float:
        least = min(_counts(made).items(), key=lambda item: (item[1], item[0]))[0]
        return 6.0 if worker == (least if made.moved else "w0") else 1.0

    made.slow = slow
    before = dict(made.desired)
    made.run(30)
    assert made.decisions(Outcome.RETURNED)
    assert made.desired == before
    first = [moved for moved in made.moved if not moved.back]
    made.run(300)
    later = [moved for moved in made.moved if not moved.back][len(first) :]
    nodes = {moved.node for moved in first}
    again = [moved.at for moved in later if moved.node in nodes]
    back_at = max(moved.at for moved in made.moved[: 2 * len(first)] if moved.back)
    assert all(at - back_at >= 2 * ACT.cool_down_s for at in again)


@pytest.mark.parametrize("first", few([0, 10, 20]))
def test_noise_does_not_hide_that_a_plan_has_helped(first: int) -> None:
    """Each task is held up now and then, so that the longest of four batches is long on some worker or other."""
    helped, returned = 0, 0
    for seed in range(first, first + 10):
        random = Random(seed)

        def noisy(partition: int, at: float, random: Random = random) -> float:
            return (1.6 if partition % 4 == 0 else 1.0) * (2.0 if random.randrange(6) == 0 else 1.0)

        made = world(noisy)
        made.run(ENOUGH)
        helped += len(made.decisions(Outcome.HELPED))
        returned += len(made.decisions(Outcome.RETURNING))
    assert helped >= 10
    assert returned <= helped // 5


def _counts(made: World) -> dict[str, int]:
    counts = dict.fromkeys(made.cluster.workers, 0)
    for worker in made.desired.values():
        counts[worker] += 1
    return counts


def test_a_plan_beyond_the_budget_of_an_hour_is_made_in_parts() -> None:
    made = world(policy=dataclasses.replace(ACT, hourly_moves=1, cool_down_s=60.0))
    made.run(ENOUGH)
    (moved,) = made.moved
    assert made.desired[moved.node.partition] == moved.target, "the part has helped, so it stays"
    assert "for all 6 moves the hour has too little left" in made.decisions(Outcome.MOVING)[-1].why
    assert "this hour has 0 moves" in made.decisions(Outcome.OVER_BUDGET)[-1].why
    made.run(round(HOUR_S / INTERVAL_S))
    assert len(made.moved) == 2
    assert made.imbalance < 1.2


def test_a_part_of_a_plan_that_would_not_help_is_not_made() -> None:
    """One of sixteen moves off a worker that has everything would lower its load by a fiftieth."""
    many = World(
        2, 64, lambda partition, at: 1.0 if partition % 2 == 0 else 1e-3, dataclasses.replace(ACT, hourly_moves=1)
    )
    many.run(ENOUGH)
    assert not many.moved
    assert "this hour has 1 moves" in many.decisions(Outcome.OVER_BUDGET)[-1].why


@pytest.mark.parametrize("seed", few(range(5), 2))
def test_noise_moves_hardly_anything_where_no_balance_is_possible(seed: int) -> None:
    """Ten virtual nodes on three workers: one has four of them, so the imbalance is at the edge of the band."""
    random = Random(seed)
    policy = dataclasses.replace(ACT, window_batches=2, cool_down_s=60.0)
    made = World(3, 10, lambda partition, at: random.uniform(0.85, 1.15), policy)
    made.run(300)
    assert len(made.moved) <= 4


def test_a_move_that_costs_more_than_it_saves_is_not_made() -> None:
    made = world(policy=dataclasses.replace(ACT, horizon_s=2.0))
    made.run(ENOUGH)
    assert not made.moved
    assert made.decisions()[-1].outcome is Outcome.NOT_WORTH


@pytest.mark.parametrize("batches", [18, 20, 22, 24, 26, 30])
def test_a_restarted_manager_goes_on_with_the_plan_under_way(batches: int) -> None:
    made = world()
    made.run(batches)
    told = [(decision.number, decision.outcome) for decision in made.decisions()]
    trial = made.play.core.adaptation.trial
    made.restart_manager()
    assert [(d.number, d.outcome) for d in made.decisions()] == told
    restored = made.play.core.adaptation.trial
    assert (restored is None) == (trial is None)
    made.run(ENOUGH)
    assert made.imbalance <= 1 + ACT.band
    assert len(made.decisions(Outcome.MOVING)) == 1
    assert not made.decisions(Outcome.FAILED)


def test_a_query_that_stops_ends_the_watch() -> None:
    made = world()
    while not made.decisions(Outcome.MOVING):
        made.batch()
    made.run(2)
    made.play(ev.QueryEnded(made.play.session(), JOB, made.run_id))
    made.see()
    assert made.play.core.adaptation.trial is None
    assert made.decisions()[-1].outcome is Outcome.UNVERIFIED


def test_forgetting_a_job_drops_its_decisions() -> None:
    made = world()
    made.run(ENOUGH)
    assert any(key.startswith("handover_manager/decision/") for key in made.play.journal)
    made.play(ev.QueryEnded(made.play.session(), JOB, made.run_id))
    made.play(ev.JobForgotten(JOB))
    assert not [key for key in made.play.journal if key.startswith("handover_manager/decision/")]
