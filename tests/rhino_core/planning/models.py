"""Small models of placement for tests, and the best plan by trying all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from rhino_core.ids import VirtualNode
from rhino_core.planning.goals import Goals, Weight
from rhino_core.planning.model import Model, Site
from rhino_core.planning.propose import Plan


def node(number: int) -> VirtualNode:
    return VirtualNode("job-a", 0, number)


def model_of(
    workers: int | Sequence[Site], owners: Sequence[int], loads: Sequence[float], copies: Sequence[Sequence[int]] = ()
) -> Model:
    """Workers w0, w1, ... Virtual node i is on `owners[i]`; `loads` are its seconds and MiB."""
    model = Model()
    model.put_workers([Site(f"w{number}") for number in range(workers)] if isinstance(workers, int) else workers)
    model.put_nodes(
        [node(number) for number in range(len(owners))],
        [f"w{owner}" for owner in owners],
        {
            Weight.TIME: loads,
            Weight.ROWS: [load * 1000 for load in loads],
            Weight.BYTES: [load * (1 << 20) for load in loads],
        },
        [tuple(f"w{holder}" for holder in (copies[number] if copies else ())) for number in range(len(owners))],
        {},
    )
    return model


def placed_by(plan: Plan) -> dict[int, int]:
    """The new worker of each moving virtual node of `model_of`."""
    return {move.node.partition: int(move.target.removeprefix("w")) for move in plan.moves}


def placements(model: Model) -> Iterator[dict[int, int]]:
    """Every placement, as moves from the model."""
    for targets in itertools.product(range(len(model.sites)), repeat=len(model.nodes)):
        yield {index: target for index, target in enumerate(targets) if target != model.owner[index]}


def loads_after(model: Model, goals: Goals, placed: dict[int, int]) -> list[float]:
    """Loads of the workers."""
    column = model.columns[goals.weight]
    found = [0.0] * len(model.sites)
    for index in range(len(model.nodes)):
        found[placed.get(index, model.owner[index])] += column[index]
    return found


@st.composite
def small_models(draw: st.DrawFn, *, equal: bool = False) -> Model:
    """Up to 3 workers and 6 virtual nodes, so that all placements can be tried."""
    workers = draw(st.integers(2, 3))
    count = draw(st.integers(1, 6))
    owners = draw(st.lists(st.integers(0, workers - 1), min_size=count, max_size=count))
    loads = [1.0] * count if equal else draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    copies = []
    for at in owners:
        others = [worker for worker in range(workers) if worker != at]
        copies.append(draw(st.lists(st.sampled_from(others), max_size=1)))
    return model_of(workers, owners, [float(load) for load in loads], copies)
