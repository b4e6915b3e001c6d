"""What a trace shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from handover_manager.adapt.decisions import Outcome
from workloads.adaptation import traces
from workloads.adaptation.world import World


@dataclass(frozen=True, slots=True)
class Seen:
    """One trace. `kinds`: its shape, and what happened besides. `before`, `after`: max/mean at the end, without moves
    and with them. `before` is None if workers were lost. `problems`: how many of each check.
    """

    name: str
    kinds: tuple[str, ...]
    before: float | None
    after: float
    plans: int
    moves: int
    helped: int
    returned: int
    problems: dict[str, list[str]]


def observed_seed(seed: int) -> Seen:
    """Runs the trace of a seed."""
    return observed(traces.run(seed))


def observed(trace: traces.Trace) -> Seen:
    """What a trace shows."""
    world = trace.world
    outcomes = Counter(one.outcome for one in world.decisions())
    happened = {
        "slow worker": trace.slow,
        "backlog": trace.backlog,
        "lost zone": trace.lost,
        "uneven state": trace.uneven,
    }
    return Seen(
        str(trace),
        (trace.shape.replace("_", " "), *(name for name, value in happened.items() if value)),
        None if trace.lost else _unmoved(world),
        world.imbalance,
        outcomes[Outcome.MOVING],
        sum(not moved.back for moved in world.moved),
        outcomes[Outcome.HELPED],
        outcomes[Outcome.RETURNING],
        traces.checked(trace),
    )


def _unmoved(world: World) -> float:
    """max/mean now, if every virtual node were where it began."""
    loads = [0.0] * world.workers
    for partition in range(world.partitions):
        worker = partition % world.workers
        loads[worker] += world.task_s(partition, f"w{worker}")
    return max(loads) * len(loads) / sum(loads)
