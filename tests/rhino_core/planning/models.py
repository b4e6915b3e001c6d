"""Small models of placement for tests, and the best plan by trying all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from rhino_core.ids import VirtualNode
from rhino_core.planning.goals import Goals
from rhino_core.planning.model import NOWHERE, Load, Model, Site


def node(number: int) -> VirtualNode:
    return VirtualNode("job-a", 0, number)


def model_of(
    workers: int, owners: Sequence[int], loads: Sequence[float], copies: Sequence[Sequence[int]] = ()
) -> Model:
    """Workers w0, w1, ... Virtual node i is on `owners[i]` (-1: nowhere); `loads` are its seconds and MiB."""
    model = Model()
    for number in range(workers):
        model.put_worker(Site(f"w{number}", f"host-{number}"))
    for number, (owner, load) in enumerate(zip(owners, loads, strict=True)):
        holders = tuple(f"w{holder}" for holder in (copies[number] if copies else ()))
        weights = Load(load, load * 1000, load * (1 << 20))
        model.put_node(node(number), None if owner == NOWHERE else f"w{owner}", weights, holders)
    return model


def placements(model: Model) -> Iterator[dict[int, int]]:
    """Every placement, as moves from the model."""
    for targets in itertools.product(range(len(model.sites)), repeat=len(model.nodes)):
        yield {index: target for index, target in enumerate(targets) if target != model.owner[index]}


def loads_after(model: Model, goals: Goals, placed: dict[int, int]) -> list[float]:
    """Loads of the workers in the most important weight."""
    column = model.columns[goals.weights[0]]
    found = [0.0] * len(model.sites)
    for index in range(len(model.nodes)):
        found[placed.get(index, model.owner[index])] += column[index]
    return found


@st.composite
def small_models(draw: st.DrawFn, *, equal: bool = False, homeless: bool = False) -> Model:
    """Up to 3 workers and 6 virtual nodes, so that all placements can be tried."""
    workers = draw(st.integers(2, 3))
    count = draw(st.integers(1, 6))
    owner = st.integers(NOWHERE if homeless else 0, workers - 1)
    owners = draw(st.lists(owner, min_size=count, max_size=count))
    loads = [1.0] * count if equal else draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    copies = []
    for at in owners:
        others = [worker for worker in range(workers) if worker != at]
        copies.append(draw(st.lists(st.sampled_from(others), max_size=1)))
    return model_of(workers, owners, [float(load) for load in loads], copies)
