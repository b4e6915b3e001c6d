"""Rounds that place many virtual nodes at once: balance in several weights, room, capacity, workers that lag behind."""

from __future__ import annotations

import math
import random

import pytest

from rhino_core.planning.goals import ORDER, Goals, Weight
from rhino_core.planning.model import Load, Model, Site
from rhino_core.planning.propose import propose
from rhino_core.planning.rounds import Rounds
from rhino_core.planning.state import State
from tests.rhino_core.planning.models import node

GOALS = Goals(dict.fromkeys(ORDER, 0.05) | {Weight.TIME: 0.01})


def many(workers: int, nodes: int, chance: random.Random) -> Model:
    """Workers without any load, and virtual nodes on no worker."""
    model = Model()
    for number in range(workers):
        model.put_worker(Site(f"w{number}"))
    for number in range(nodes):
        model.put_node(node(number), None, drawn(chance))
    return model


def drawn(chance: random.Random) -> Load:
    time_s = chance.lognormvariate(0, 0.8)
    return Load(time_s, time_s * chance.lognormvariate(0, 0.5), time_s * 1e6 * chance.lognormvariate(0, 0.6))


def largest_first(model: Model) -> list[int]:
    return sorted(model.homeless, key=lambda index: -model.columns[Weight.TIME][index])


def recount(state: State) -> None:
    """Loads and members must be those of the virtual nodes that were placed."""
    for worker in state.receivers:
        mine = {index for index in state.model.node_index.values() if state.place_of(index) == worker}
        assert state.members(worker) == mine
        for loads, column in zip(state.loads, state.columns, strict=True):
            assert loads[worker] == pytest.approx(math.fsum(column[index] for index in mine))


def test_rounds_alone_bring_nearly_all_workers_within_their_bands() -> None:
    state = State(many(60, 6000, random.Random(1)), GOALS)
    assert Rounds(state, largest_first(state.model)).run() == []
    assert len(state.placed) == 6000
    assert len(state.overloaded()) <= 6
    recount(state)


def test_a_weight_without_a_band_is_counted_and_does_not_decide() -> None:
    state = State(many(6, 300, random.Random(2)), Goals({Weight.TIME: 0.01, Weight.BYTES: math.inf}))
    Rounds(state, largest_first(state.model)).run()
    assert max(state.loads[0]) <= 1.01 * sum(state.loads[0]) / 6
    recount(state)


def test_what_no_worker_has_room_for_is_returned_and_room_is_never_below_zero() -> None:
    model = many(10, 400, random.Random(3))
    for number in range(9):
        model.put_worker(Site(f"w{number}", room_bytes=25e6))
    state = State(model, GOALS)
    left = Rounds(state, largest_first(model)).run()
    assert left, "the room of nine workers is less than their share"
    assert set(left) | set(state.placed) == model.homeless
    assert not set(left) & set(state.placed)
    assert min(state.room) >= 0
    recount(state)
    assert len(propose(model, GOALS)) == 400, "the rest fits on the worker without a limit"


def test_a_worker_with_more_capacity_receives_more_of_everything() -> None:
    model = many(10, 2000, random.Random(4))
    model.put_worker(Site("w3", capacity=3.0))
    state = State(model, GOALS)
    Rounds(state, largest_first(model)).run()
    for share, loads in zip(state.shares, state.loads, strict=True):
        assert loads[3] == pytest.approx(3 * share.fair, rel=0.1)
    recount(state)


def test_workers_that_have_their_share_wait_until_new_ones_have_caught_up() -> None:
    model = many(10, 1000, random.Random(5))
    full = Load(*(0.95 * math.fsum(model.columns[weight]) / 5 for weight in (Weight.TIME, Weight.ROWS, Weight.BYTES)))
    for number in range(5):
        for part in range(190):
            load = Load(*(value / 190 for value in (full.time_s or 0, full.rows or 0, full.bytes or 0)))
            model.put_node(node(10_000 + number * 190 + part), f"w{number}", load)
    state = State(model, GOALS)
    Rounds(state, largest_first(model)).run()
    for share, loads in zip(state.shares[:3], state.loads[:3], strict=True):
        assert max(loads) <= 1.05 * share.mean
    recount(state)
    assert propose(model, GOALS).certificate.bounds[Weight.TIME].gap <= 0.0101
