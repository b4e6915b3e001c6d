"""The rule of the example controller."""

from __future__ import annotations

from examples.controller.core import Controller
from rhino import BatchLoad
from rhino_model.loads import VirtualNodeLoad


def batch(number: int, *task_s: float, job: str = "q") -> BatchLoad:
    """Virtual node i is on worker i."""
    nodes = tuple(VirtualNodeLoad(f"0/{i}", f"w{i}", seconds, None) for i, seconds in enumerate(task_s))
    return BatchLoad(job, "", "run", number, 1, 0, 0.0, 0.0, nodes, len(task_s), 0)


def test_imbalance_counts_workers_without_a_task() -> None:
    load = batch(0, 1.0, 1.0)
    assert load.imbalance == 1.0
    assert BatchLoad("q", "", "run", 0, 1, 0, 0.0, 0.0, load.virtual_nodes, 4, 0).imbalance == 2.0
    assert batch(0, 0.0, 0.0).imbalance is None


def test_it_acts_after_uneven_batches_in_a_row_and_then_pauses() -> None:
    controller = Controller(band=0.2, batches=3, pause=2)
    uneven, even = (3.0, 1.0), (1.1, 1.0)
    assert [controller.batch(batch(n, *uneven)) for n in range(2)] == [False, False]
    assert not controller.batch(batch(2, *even))
    assert [controller.batch(batch(n, *uneven)) for n in range(3, 6)] == [False, False, True]
    assert [controller.batch(batch(n, *uneven)) for n in range(6, 10)] == [False] * 4
    assert controller.batch(batch(10, *uneven))


def test_queries_do_not_mix() -> None:
    controller = Controller(batches=2)
    assert not controller.batch(batch(0, 3.0, 1.0, job="a"))
    assert not controller.batch(batch(0, 3.0, 1.0, job="b"))
    assert controller.batch(batch(1, 3.0, 1.0, job="a"))
