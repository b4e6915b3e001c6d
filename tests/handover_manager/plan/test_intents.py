"""Plans of intents: who moves where, and why; random ones by Hypothesis."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from handover_manager.events import QueryEnded
from handover_manager.plan.planner import make_plan
from handover_manager.plan.situation import Situation
from handover_manager.plan.work import Work
from handover_manager.view import TaskGroup
from rhino_core import errors
from rhino_core.ids import DiskState, VirtualNode
from rhino_model.handovers import Plan
from rhino_model.intents import Drain, Intent, Rebalance, Request, ScaleIn, ScaleOut, Weight, check_workers, weight_of
from rhino_model.strategy import Kind, Strategy, kind_of
from workloads.adaptation.scene import JOB, Cluster, Play, group

WORKERS = ["w1", "w2", "w3", "w4", "w5"]


def situation(cluster: Cluster, *jobs: str) -> Situation:
    """Every group of one operator is a virtual node, desired where its owner is."""
    nodes = {VirtualNode(g.job, g.operator, g.partition): (g.operator,) for g in cluster.groups if g.job in jobs}
    desired = {n: cluster.groups[group(n.task_group, n.partition, n.job)].owner for n in nodes}
    work = {n: Work(n.partition * 7 % 11, 0.1 * (n.partition % 4)) for n in nodes}
    return Situation(nodes, desired, {}, {}, cluster.view, work)


def plan(cluster: Cluster, intent: Intent, strategy: Strategy | None = None) -> Plan:
    return make_plan(Request(JOB, intent=intent, strategy=strategy or Strategy()), JOB, situation(cluster, JOB))


def targets(made: Plan) -> dict[str, str]:
    return {move.node.name: move.target for move in made.moves}


def chains(cluster: Cluster, *chain: str, stored: int = 100) -> Cluster:
    for partition, members in enumerate(chain):
        names = members.split()
        cluster.chain(group(0, partition), members, {name: stored for name in names if not name.endswith("?")})
    return cluster


def test_a_drain_spreads_over_holders_by_load() -> None:
    cluster = chains(Cluster("w1", "w2", "w3"), "w1 w2 w3", "w1 w2 w3", "w2 w1", "w2 w1")
    made = plan(cluster, Drain("w1"))
    assert targets(made) == {"0/0": "w3", "0/1": "w3"}
    assert (made.bytes_to_move, made.intent) == (0, "drain w1")
    assert {move.why for move in made.moves} == {"one of 2 holders of a replica"}


def test_a_drain_at_once_does_not_wait_for_copies_where_there_is_a_replica() -> None:
    cluster = chains(Cluster("w1", "w2", "w3"), "w1", "w1 w2", "w1 w3?", "w1 w3")
    steps = [[move.node.name for move in step.moves] for step in plan(cluster, Drain("w1")).steps]
    assert steps == [["0/1", "0/3"], ["0/0", "0/2"]]
    assert len(plan(cluster, ScaleIn(("w1",))).steps) == 1


def test_why_counts_those_that_might_have_been_chosen() -> None:
    only = plan(chains(Cluster("w1", "w2"), "w1 w2", "w1 w2"), Rebalance())
    assert {move.why for move in only.moves} == {"the only other holder"}
    two = plan(chains(Cluster("w1", "w2", "w3"), *["w1 w2 w3"] * 3), Rebalance())
    assert {move.why for move in two.moves} == {"one of 2 holders of a replica"}
    held = chains(Cluster("w1", "w2", "w3"), *["w1 w2"] * 3, *["w2 w1"] * 3)
    assert {m.why for m in plan(held, Rebalance()).moves} == {
        "no holder of a replica is below the mean: the least loaded worker with room"
    }
    assert {m.why for m in plan(held, ScaleOut(("w3",))).moves} == {
        "the least loaded of the workers that were asked for"
    }


def test_a_drain_goes_to_others_when_no_holder_can_take_it() -> None:
    cluster = chains(Cluster("w1", "w2", "w3", "w4"), "w1 w2", "w1 w4", "w3 w4")
    cluster.worker("w2", draining=True)
    cluster.worker("w4", disk=DiskState.FULL)
    made = plan(cluster, Drain("w1"))
    assert targets(made) == {"0/0": "w3", "0/1": "w3"}
    assert made.bytes_to_move == 200
    assert "no holder" in made.moves[0].why
    cluster.worker("w3", free_bytes=150)
    with pytest.raises(errors.NoSpaceError, match="fits on no other worker of w3"):
        plan(cluster, Drain("w1"))
    cluster.lose("w3")
    with pytest.raises(errors.PreconditionError, match="no other worker is live"):
        plan(cluster, Drain("w1"))


def test_scale_in_empties_several_and_scale_out_fills_only_new_ones() -> None:
    cluster = chains(Cluster("w1", "w2", "w3", "w4"), *["w1 w2"] * 3, *["w2 w1"] * 3)
    off = plan(cluster, ScaleIn(("w1", "w2")))
    assert len(off.moves) == 6
    assert Counter(targets(off).values()) == {"w3": 3, "w4": 3}
    out = plan(cluster, ScaleOut(("w3",)))
    assert Counter(targets(out).values()) == {"w3": 2}
    both = plan(cluster, ScaleOut(("w3", "w4"), Weight.COUNT))
    assert Counter(targets(both).values()) == {"w3": 1, "w4": 1}
    cluster.worker("w3", draining=True)
    with pytest.raises(errors.UnavailableError, match="w3 take nothing"):
        plan(cluster, ScaleOut(("w3",)))


def test_rebalance_by_bytes_moves_the_heavy_ones_to_holders() -> None:
    cluster = Cluster("w1", "w2", "w3")
    for partition, size in enumerate((600, 300, 300, 10)):
        cluster.chain(group(0, partition), "w1 w2" if partition else "w1 w3", {"w1": size, "w2": size, "w3": size})
    made = plan(cluster, Rebalance())
    assert targets(made) == {"0/1": "w2", "0/2": "w2"} or sum(m.state_bytes for m in made.moves) >= 600
    loads = Counter({"w1": 1210})
    for move in made.moves:
        loads[move.target] += move.state_bytes
        loads["w1"] -= move.state_bytes
    assert max(loads.values()) <= 610
    with pytest.raises(errors.AlreadyThereError, match="nothing has to move"):
        plan(chains(Cluster("w1", "w2"), "w1 w2", "w2 w1"), Rebalance())


def test_a_drain_concerns_all_running_jobs_and_the_other_intents_one() -> None:
    cluster = chains(Cluster("w1", "w2", "w3"), "w1 w2", "w1 w2")
    cluster.chain(group(0, 0, "job-b"), "w1 w2")
    cluster.chain(group(0, 0, "job-c"), "w1 w2")
    play = Play(cluster)
    play.begin()
    play.begin(TaskGroup(0, (0,), 1), session=2, job="job-b", name="other")
    play.begin(TaskGroup(0, (0,), 1), session=3, job="job-c", name="gone")
    play.see()
    play(QueryEnded(3, "job-c", "run-1"))
    made = play.plan(Request("", intent=Drain("w1")))
    assert made.jobs == (JOB, "job-b")
    assert play.plan(Request("other", intent=Drain("w1"))).jobs == ("job-b",)
    with pytest.raises(errors.InvalidRequestError, match="no job given"):
        play.plan(Request("", intent=Rebalance()))
    with pytest.raises(errors.InvalidRequestError, match="chooses virtual nodes and targets itself"):
        play.plan(Request(JOB, ("0/0",), intent=Rebalance()))
    with pytest.raises(errors.UnknownError, match="'w9': unknown; known are w1, w2, w3"):
        play.plan(Request("", intent=Drain("w9")))
    play.start("w3", "0/0")
    left = play.plan(Request("", intent=Drain("w1")))
    assert [(move.node.job, move.node.name) for move in left.moves] == [(JOB, "0/1"), ("job-b", "0/0")]
    with pytest.raises(errors.ConflictError, match=r"0/0 \(handover h1\)"):
        play.plan(Request(JOB, intent=ScaleIn(("w1",))))
    with pytest.raises(errors.ConflictError, match="handover h1 moves to worker w3"):
        play.plan(Request("", intent=Drain("w3")))


def test_malformed_strategies_and_weights_name_the_value_and_what_there_is() -> None:
    with pytest.raises(errors.InvalidRequestError, match="'slow': use one of all_at_once, batched, fluid, matched"):
        kind_of("slow")
    with pytest.raises(errors.InvalidRequestError, match="by 'size': use bytes, rows, time, count"):
        weight_of("size")
    wrong: list[dict[str, Any]] = [{"batch_size": 0}, {"gap_s": -1.0}, {"gap_batches": -1}, {"max_transfers": -1}]
    for arguments in [*wrong, {"gap_s": float("inf")}, {"start_at_ms": -1}]:
        with pytest.raises(errors.InvalidRequestError):
            Strategy(**arguments)
    with pytest.raises(errors.InvalidRequestError, match="twice"):
        check_workers(("w1", "w1"))
    with pytest.raises(errors.InvalidRequestError, match="no worker"):
        check_workers(())


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    cluster = Cluster(*WORKERS)
    for name in WORKERS:
        state = draw(st.sampled_from(["ok", "ok", "ok", "draining", "full", "lost"]))
        free = draw(st.integers(0, 1500))
        cluster.worker(
            name,
            live=state != "lost",
            reachable=state != "lost",
            free_bytes=free,
            disk=DiskState.FULL if state == "full" else DiskState.OK,
            draining=state == "draining",
        )
    for partition in range(draw(st.integers(1, 14))):
        chain = draw(st.permutations(WORKERS))[: draw(st.integers(1, 3))]
        size = draw(st.sampled_from([0, 1, 50, 100, 400]))
        cluster.chain(group(0, partition), " ".join(chain), dict.fromkeys(chain, size))
    return cluster


INTENTS = st.one_of(
    st.builds(Drain, st.sampled_from(WORKERS)),
    st.builds(Rebalance, st.sampled_from(Weight)),
    st.builds(ScaleOut, st.lists(st.sampled_from(WORKERS), min_size=1, max_size=3, unique=True).map(tuple)),
    st.builds(ScaleIn, st.lists(st.sampled_from(WORKERS), min_size=1, max_size=3, unique=True).map(tuple)),
)
STRATEGIES = st.builds(Strategy, st.sampled_from(Kind), st.integers(1, 4))


@settings(deadline=None)
@given(clusters(), INTENTS, STRATEGIES)
def test_every_plan_keeps_what_its_intent_and_strategy_promise(
    cluster: Cluster, intent: Intent, strategy: Strategy
) -> None:
    before = situation(cluster, JOB)
    try:
        made = plan(cluster, intent, strategy)
    except (errors.AlreadyThereError, errors.NoSpaceError, errors.UnavailableError, errors.PreconditionError):
        reject()
    nodes = [move.node for move in made.moves]
    assert len(nodes) == len(set(nodes)) > 0
    received = Counter[str]()
    for move in made.moves:
        seen = cluster.workers[move.target]
        assert seen.eligible
        assert move.origin == before.desired[move.node] != move.target
        assert move.why
        received[move.target] += move.bytes_to_move
    assert all(size <= cluster.workers[w].free_bytes for w, size in received.items()), "over capacity"
    after = {**before.desired, **{move.node: move.target for move in made.moves}}
    match intent:
        case Drain(worker):
            assert worker not in after.values()
            assert all(move.origin == worker for move in made.moves)
        case ScaleIn(workers):
            assert not set(workers) & set(after.values())
        case ScaleOut(workers):
            assert {move.target for move in made.moves} <= set(workers)
        case Rebalance(by):
            eligible = [w for w, seen in cluster.workers.items() if seen.eligible]
            if by is Weight.COUNT:
                then, now = (Counter(w for w in d.values() if w in eligible) for d in (before.desired, after))
                assert max(now[w] for w in eligible) <= max(then[w] for w in eligible)
    check_steps(made, strategy)


def check_steps(made: Plan, strategy: Strategy) -> None:
    sizes = [len(step.moves) for step in made.steps]
    match strategy.kind:
        case Kind.ALL_AT_ONCE:
            *before, _ = made.steps
            assert len(before) <= made.intent.startswith("drain")
            assert not any(step.bytes_to_move for step in before), "a drain gives up first what needs no copy"
        case Kind.FLUID:
            assert set(sizes) == {1}
        case Kind.BATCHED:
            assert set(sizes[:-1]) <= {strategy.batch_size}
            assert sizes[-1] <= strategy.batch_size
        case Kind.MATCHED:
            for step in made.steps:
                for end in ("origin", "target"):
                    assert max(Counter(getattr(move, end) for move in step.moves).values()) == 1
            ends = [Counter(getattr(move, end) for move in made.moves) for end in ("origin", "target")]
            assert len(made.steps) < sum(max(count.values()) for count in ends), "more steps than needed"


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=2, max_size=5))
def test_rebalance_by_count_is_even_with_the_fewest_moves(loads: list[int]) -> None:
    names = [f"w{n}" for n in range(len(loads))]
    cluster = Cluster(*names)
    partition = 0
    for position, count in enumerate(loads):
        for _ in range(count):
            other = names[(position + 1) % len(names)]
            cluster.chain(group(0, partition), f"{names[position]} {other}", {names[position]: 10, other: 10})
            partition += 1
    low, rest = divmod(sum(loads), len(loads))
    ideal = [low + (n < rest) for n in range(len(loads))]
    fewest = sum(max(have - want, 0) for have, want in zip(sorted(loads, reverse=True), ideal, strict=True))
    if not fewest:
        with pytest.raises(errors.AlreadyThereError):
            plan(cluster, Rebalance(Weight.COUNT))
        return
    made = plan(cluster, Rebalance(Weight.COUNT))
    after = Counter(dict(zip(names, loads, strict=True)))
    for move in made.moves:
        after[move.origin] -= 1
        after[move.target] += 1
    assert sorted(after.values(), reverse=True) == ideal
    assert len(made.moves) == fewest
