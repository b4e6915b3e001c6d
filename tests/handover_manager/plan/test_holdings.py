"""A plan that reads only what has changed since the plans before equals one that reads everything."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from handover_manager.plan.holdings import Holdings
from handover_manager.plan.planner import make_plan
from handover_manager.plan.situation import Situation
from handover_manager.plan.targets import model_of
from handover_manager.view import GroupSeen
from rhino_core.errors import RhinoError
from rhino_core.planning.model import Model
from rhino_model.handovers import Plan
from rhino_model.intents import Drain, Intent, Rebalance, Request, ScaleIn, ScaleOut, Weight
from tests.handover_manager.support.together import WEIGHTS
from tests.handover_manager.together import World
from tests.nightly import few
from workloads.adaptation.scene import JOB, Cluster, group, node

SEEDS = 8
STEPS = 250


def situation_of(world: World, holdings: Holdings) -> Situation:
    core = world.play.core
    job, running = core.jobs[JOB], core.handovers.running()
    arriving, work = core.handovers.arriving(), job.work.usual()
    return Situation(job.map.nodes, job.map.desired, running, arriving, core.view, work, holdings=holdings)


def planned(intent: Intent, situation: Situation) -> Plan | str:
    try:
        return make_plan(Request(JOB, intent=intent), JOB, situation)
    except RhinoError as error:
        return str(error)


def models(situation: Situation) -> list[Model]:
    """As for a rebalance, and for a drain of each worker."""
    room = {name: seen.free_bytes for name, seen in situation.view.workers.items() if seen.eligible}
    drained = [
        model_of(situation, Weight.BYTES, {w: size for w, size in room.items() if w != name}, frozenset({name}))
        for name in sorted(situation.view.workers)
    ]
    return [model_of(situation, Weight.BYTES, room), *drained]


@pytest.mark.parametrize("seed", few(range(SEEDS), 4))
def test_after_any_events_a_plan_equals_one_made_from_nothing(seed: int) -> None:
    """Registrations, losses, reports, handovers, drains and restarts of both cores of the manager."""
    world, kept, compared, moving = World(seed), Holdings(), 0, 0
    actions, weights = zip(*WEIGHTS.items(), strict=True)
    for _ in range(STEPS):
        core = world.play.core
        world.random.choices(actions, weights)[0](world)
        if world.away and world.random.random() < 0.05:
            world.register(min(world.away))
        if world.session is None:
            world.connect()
        if world.play.core is not core:
            kept = Holdings()  # a new process
        if world.random.random() < 0.5:
            continue  # several events between two plans
        live, fresh = situation_of(world, kept), situation_of(world, Holdings())
        assert models(live) == models(fresh)
        names = sorted(live.view.workers)
        if not names:
            continue  # before the first view of a new process
        intents: list[Intent] = [Rebalance(by) for by in (Weight.BYTES, Weight.COUNT)]
        intents += [ScaleIn((names[0],)), ScaleOut((names[-1],)), *map(Drain, names)]
        for intent in intents:
            plan = planned(intent, live)
            assert plan == planned(intent, fresh), intent
            compared += 1
            moving += isinstance(plan, Plan)
    assert compared > STEPS
    assert moving > STEPS / 10


class Counted(dict[str, int]):
    """Stored bytes that count how often they are read."""

    reads = 0

    def get(self, key: str, default: Any = None, /) -> Any:
        Counted.reads += 1
        return super().get(key, default)


def test_only_what_has_changed_is_read_again() -> None:
    cluster, holdings = Cluster("w1", "w2", "w3"), Holdings()
    places = {node(f"0/{partition}"): (0,) for partition in range(6)}
    for partition in range(6):
        cluster.chain(group(0, partition), "w1 w2", Counted({"w1": 100, "w2": 100}))
    view = cluster.view

    def read() -> list[int]:
        Counted.reads = 0
        situation = Situation(places, dict.fromkeys(places, "w1"), {}, {}, view, holdings=holdings)
        model = model_of(situation, Weight.BYTES, dict.fromkeys(cluster.workers, 1000))
        return [Counted.reads, *(int(size) for size in model.columns[Weight.BYTES])]

    assert read() == [6, *[100] * 6]
    assert read() == [0, *[100] * 6]
    changed = group(0, 4)
    seen = GroupSeen(cluster.groups[changed].group, Counted({"w1": 300}))
    view = dataclasses.replace(view, groups={**view.groups, changed: seen})
    assert read() == [1, 100, 100, 100, 100, 300, 100]
    view = dataclasses.replace(view, groups={name: seen for name, seen in view.groups.items() if name != changed})
    assert read() == [0, *[100] * 5]
    holdings.forget(JOB)
    assert read() == [5, *[100] * 5]
