"""Seeded traces of load under adaptation, and what must hold in all of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from handover_manager.adapt.cool_downs import RISEN
from handover_manager.adapt.lag import BEHIND
from handover_manager.adapt.policy import Mode, Policy
from handover_manager.adapt.windows import NodeLoad
from rhino_model.decisions import Outcome
from rhino_model.loads import SourceLag
from workloads.adaptation.world import INTERVAL_S, ZONES, Load, Moved, World

BATCHES = 260
LAST_RESTART = BATCHES - 20  # of the manager: the last decision of a trace is one about load
HOUR_S = 3600.0
Shape = Callable[[random.Random, int], Load]


def step(draw: random.Random, partitions: int) -> Load:
    """From some time on, some partitions have several times the load."""
    at_s, factor = draw.uniform(0, 400), draw.uniform(2, 8)
    chosen = set(draw.sample(range(partitions), draw.randint(1, partitions // 3)))
    return lambda partition, at: factor if at > at_s and partition in chosen else 1.0


def ramp(draw: random.Random, partitions: int) -> Load:
    """The load of some partitions rises steadily."""
    chosen, rate = set(draw.sample(range(partitions), 2)), draw.uniform(0.002, 0.02)
    return lambda partition, at: 1.0 + (rate * at if partition in chosen else 0.0)


def diurnal(draw: random.Random, partitions: int) -> Load:
    """Partitions have their days and nights, at different times."""
    period_s, phases = draw.uniform(300, 2000), [draw.uniform(0, 2 * math.pi) for _ in range(partitions)]
    depth = draw.uniform(0.2, 0.9)
    return lambda partition, at: 1.0 + depth * math.sin(2 * math.pi * at / period_s + phases[partition])


def flash_crowd(draw: random.Random, partitions: int) -> Load:
    """For a short time, some partitions have many times the load."""
    begin, length_s, factor = draw.uniform(50, 800), draw.uniform(5, 200), draw.uniform(3, 15)
    chosen = set(draw.sample(range(partitions), 2))
    return lambda partition, at: factor if partition in chosen and begin < at < begin + length_s else 1.0


def rotating(draw: random.Random, partitions: int) -> Load:
    """A hot spot that moves on to the next partition."""
    period_s, factor = draw.uniform(10, 400), draw.uniform(3, 10)
    return lambda partition, at: factor if int(at / period_s) % partitions == partition else 1.0


def even(draw: random.Random, partitions: int) -> Load:
    return lambda partition, at: 1.0


RECOVERY_BATCHES = 12  # from the loss of a zone until all groups have their copies again
LOST_ZONE = 1
SHAPES: tuple[Shape, ...] = (step, ramp, diurnal, flash_crowd, rotating, even)


@dataclass(frozen=True)
class Trace:
    """A world that has run, and the time since when its load does not change any more; None: it always changes."""

    seed: int
    shape: str
    world: World
    backlog: tuple[float, float] | None
    steady_since: float | None
    lost: tuple[float, float] | None = None  # when a zone was lost, and when all groups had their copies again

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.shape}, {self.world.workers} workers, {self.world.partitions} partitions)"


def run(seed: int) -> Trace:
    """Runs one trace."""
    draw = random.Random(seed)
    shape = draw.choice(SHAPES)
    workers = draw.randint(2, 6)
    partitions = workers * draw.randint(2, 6)
    noise, base = draw.uniform(0, 0.15), shape(draw, partitions)
    jitter = random.Random(seed + 1)
    backlog = (begin := draw.uniform(400, 900), begin + draw.uniform(20, 150)) if draw.random() < 0.3 else None
    late = set(draw.sample(range(partitions), partitions // 3))  # partitions whose input was late
    slow = (draw.randrange(workers), draw.uniform(1.5, 4), draw.uniform(0, 600)) if draw.random() < 0.2 else None
    limited = random.Random(f"limit {seed}").random() < 0.5  # a backlog is read in batches of the usual size
    world = World(
        workers,
        partitions,
        lambda partition, at: (
            base(partition, at)
            * jitter.uniform(1 - noise, 1 + noise)
            * (5.0 if backlog and backlog[0] < at < backlog[1] and partition in late else 1.0)
        ),
        _policy(draw),
        slow=lambda worker, at: slow[1] if slow and worker == f"w{slow[0]}" and at > slow[2] else 1.0,
        rows=lambda at: 5000 if backlog and not limited and backlog[0] < at < backlog[1] else 1000,
        lags=lambda at: _lags(backlog, at) if limited else (),
        zoned=(loss := _loss(seed, workers)) is not None,
        usual=base,
    )
    lost: tuple[float, float] | None = None
    for number in range(BATCHES):
        if draw.random() < 0.005 and number < LAST_RESTART:
            world.restart_manager()
        if number == 20 and draw.random() < 0.1:
            world.run_id = "run-2"
            world.begin()
        if number == loss:
            lost = (world.play.now, world.play.now + RECOVERY_BATCHES * INTERVAL_S)
            world.lose_zone(LOST_ZONE)
        if loss is not None and number == loss + RECOVERY_BATCHES:
            world.replace_copies()
        world.batch()
    steady = {"step": 400.0, "even": 0.0}.get(shape.__name__)
    if steady is not None and lost is not None:
        steady = max(steady, lost[1])
    steady = None if slow or steady is None else steady
    return Trace(seed, shape.__name__, world, backlog, steady, lost)


def _loss(seed: int, workers: int) -> int | None:
    """The batch before which a zone is lost, if one is. Drawn apart: the rest of a trace does not depend on it."""
    draw = random.Random(f"zone {seed}")
    return draw.randint(60, 140) if workers > ZONES and draw.random() < 0.25 else None


def _lags(backlog: tuple[float, float] | None, at: float) -> tuple[SourceLag, ...]:
    """A source that gives 1000 rows to a batch. Rows that wait when the backlog begins are read by its end."""
    behind = max(0.0, (backlog[1] - at) / INTERVAL_S * 1000) if backlog and at > backlog[0] else 0.0
    return (SourceLag("source of the trace", "offsets", behind, 1000.0),)


def _policy(draw: random.Random) -> Policy:
    return Policy(
        mode=Mode.ACT,
        cool_down_s=draw.choice([60.0, 300.0, 600.0]),
        window_batches=draw.choice([2, 4]),
        hourly_moves=draw.choice([4, 256]),
    )


def problems(trace: Trace) -> list[str]:
    """The violations that a trace shows."""
    world = trace.world
    return [*_cool_downs(world), *_backlog(trace), *_recovery(trace), *_budget(world), *_balance(trace)]


def _cool_downs(world: World) -> list[str]:
    """A virtual node that adaptation has moved stays, unless the same plan is taken back or its own load has risen.

    It never goes back to a worker that it has left within its cool-down, but with the plan that is taken back.
    """
    found, newest, left = [], dict[object, Moved](), dict[object, set[str]]()
    for moved in world.moved:
        former = newest.get(moved.node)
        if former is None or moved.back or moved.at - former.at >= world.policy.cool_down_s:
            left[moved.node] = set()
        elif moved.target in left[moved.node]:
            found.append(f"{moved.node.name} went back to {moved.target} after {moved.at - former.at:.0f} s")
        elif former.back or not _has_risen(world, moved.node.partition, former.at, moved.at):
            found.append(f"{moved.node.name} moved again after {moved.at - former.at:.0f} s")
        left[moved.node].add(moved.origin)
        newest[moved.node] = moved
    return found


NOISE = 0.1  # by which the measured imbalance may be off
BEFORE_S = 200.0  # all windows that a plan rests on, and those of a backlog between them


def _has_risen(world: World, partition: int, then: float, now: float) -> bool:
    """Whether some batch since a move shows so much more load of a partition than one before it.

    This is less than adaptation asks for: it takes medians of windows.
    """
    before, since = list[NodeLoad](), list[NodeLoad]()
    for at, tasks_s in world.worked:
        load = NodeLoad(tasks_s[partition], tasks_s[partition] / sum(tasks_s.values()))
        if then - BEFORE_S <= at <= then:
            before.append(load)
        elif then < at <= now:
            since.append(load)
    parts = ((min(b[part] for b in before), max(s[part] for s in since)) for part in (0, 1))
    return all(most >= RISEN * least for least, most in parts)


def _backlog(trace: Trace) -> list[str]:
    """No plan begins while a backlog is read: its load is not the usual one."""
    if trace.backlog is None:
        return []
    begin, end = trace.backlog[0] + INTERVAL_S, trace.backlog[1]
    reported = [lag for at, _ in trace.world.worked if begin <= at <= end for lag in trace.world.lags(at)]
    if reported and all(lag.behind <= BEHIND * lag.read for lag in reported):
        return []  # so short that no batch saw more than counts as a backlog
    early = [moved for moved in trace.world.moved if begin <= moved.at <= end and not moved.back]
    return [f"{moved.node.name} moved at {moved.at:.0f} s, in a backlog" for moved in early]


def _recovery(trace: Trace) -> list[str]:
    """No plan begins while groups lack copies, and nothing moves to a worker that is lost."""
    if trace.lost is None:
        return []
    begin, end = trace.lost
    moved = [one for one in trace.world.moved if one.at > begin]
    early = [f"{one.node.name} moved at {one.at:.0f} s, before copies were back" for one in moved if one.at < end]
    gone = set(trace.world.cluster.workers) - set(trace.world.live)
    return early + [f"{one.node.name} moved to lost {one.target}" for one in moved if one.target in gone]


def _budget(world: World) -> list[str]:
    planned = [moved for moved in world.moved if not moved.back]
    for first, moved in enumerate(planned):
        hour = [later for later in planned[first:] if later.at < moved.at + HOUR_S]
        if len(hour) > world.policy.hourly_moves:
            return [f"{len(hour)} moves within an hour from {moved.at:.0f} s"]
    return []


def _balance(trace: Trace) -> list[str]:
    """A load that does not change ends balanced, unless the newest decision says why it cannot be."""
    world = trace.world
    if trace.steady_since is None:
        return []
    newest = world.decisions()[-1]
    if newest.outcome is Outcome.NOTHING_BETTER and _one_move_helps(world):
        return [f"imbalance {world.balance():.2f} at the end, and one move would help"]
    excused = {Outcome.NOTHING_BETTER, Outcome.OVER_BUDGET, Outcome.COOLING_DOWN, Outcome.NOT_WORTH, Outcome.MOVING}
    waits = newest.outcome in excused or world.play.core.adaptation.trial is not None
    ratio = world.balance()
    if ratio > 1 + world.policy.band + NOISE and not waits:
        return [f"imbalance {ratio:.2f} at the end, and the newest decision is {newest.outcome.value}"]
    late = [moved for moved in world.moved if moved.at > trace.steady_since + 700 and not moved.back]
    waited = world.decisions(Outcome.OVER_BUDGET)  # for the next hour
    return (
        [f"{len(late)} moves long after the load was steady"]
        if len(late) > world.partitions // 4 and not waited
        else []
    )


def _one_move_helps(world: World) -> bool:
    """Whether one virtual node, moved from the busiest worker to the idlest one, would lower the peak by a tenth."""
    loads = dict.fromkeys(world.live, 0.0)
    for partition, worker in world.desired.items():
        loads[worker] += world.usual_s(partition, worker)
    busiest, idlest = max(loads, key=lambda w: loads[w]), min(loads, key=lambda w: loads[w])
    mine = [partition for partition, worker in world.desired.items() if worker == busiest]
    moved = [world.balance({**world.desired, partition: idlest}) for partition in mine]
    return any(ratio < 0.9 * world.balance() for ratio in moved)
