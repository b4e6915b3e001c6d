"""`python -m benchmarks.handover`: batches before, during and after a planned move of state.

`direct`: half of a worker's virtual nodes to a worker without any of their state (r = 0). `assisted`: to one with a
replica (r = 1). `stock`: Spark's own provider with the query checkpoint on a local path, and its smallest planned move:
one executor is decommissioned, with all its partitions. `decommission`: the same with Rhino (r = 1). `all_at_once`,
`batched` (two a step), `fluid`, `matched`: half of a worker's virtual nodes as `assisted`, in the steps of this
strategy, with eighteen on three workers; `stock-many` as `stock`, with as many. `scale_in-...`: the two of four workers
with most of twelve virtual nodes are emptied so (r = 1), and copies of all their state are made. With some subjects a
cluster makes several moves, one after the other. The first is in executors a minute old: the JIT compiler is not done
with their code. Files to be loaded are in the page cache, Spark settings as in benchmarks.recovery. Compare subjects
within a run, scale-ins among themselves.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.cells import Cells, Say, parser, place_of, settled
from benchmarks.command import main, show
from benchmarks.handover.move import Moved, decommission, hand_over, scale_in
from benchmarks.handover.summary import phases, summarise, table
from benchmarks.stateful import Load, Place, Running
from rhino import Kind, MoveKind, Strategy

BATCHED = 2  # virtual nodes in a step
_MANY = Place(rhino=True, partitions=18)
_STOCK_MANY = replace(_MANY, rhino=False)
_SPREAD = Place(rhino=True, workers=4, partitions=12)
_DECOMMISSION = {"spark.decommission.enabled": "true"}
_SETTINGS = {
    "direct": {"spark.rhino.replicationFactor": "0"},
    "assisted": {"spark.rhino.replicationFactor": "1"},
    "decommission": _DECOMMISSION | {"spark.rhino.replicationFactor": "1"},
    "stock": _DECOMMISSION,
    "stock-many": _DECOMMISSION,
}
_DEFAULT = ("direct", "assisted", "stock")
_KINDS = {"direct": MoveKind.DIRECT, "assisted": MoveKind.CHECKPOINT_ASSISTED}
_STRATEGIES = {kind.value: Strategy(kind, batch_size=BATCHED if kind is Kind.BATCHED else 1) for kind in Kind}
_SCALE_INS = {f"scale_in-{name}": strategy for name, strategy in _STRATEGIES.items()}
# After one move the former worker has a replica, two workers are empty, or Spark has most partitions in few places.
_ONCE = ("direct", "decommission", "stock", "stock-many", *_SCALE_INS)


def _measure(moves: int, subject: str, load: Load, folder: Path, say: Say) -> list[Moved]:
    times = 1 if subject in _ONCE else moves
    with settled(_place(subject), load, folder, say, _SETTINGS.get(subject)) as run:
        return [replace(_move(run, subject), move=number) for number in range(1, times + 1)]


def _place(subject: str) -> Place:
    if subject in _SCALE_INS:
        return _SPREAD
    if subject in _STRATEGIES:
        return _MANY
    return _STOCK_MANY if subject == "stock-many" else place_of(subject)


def _move(run: Running, subject: str) -> Moved:
    if subject in _STRATEGIES:
        return hand_over(run, subject, MoveKind.CHECKPOINT_ASSISTED, _STRATEGIES[subject])
    if subject in _SCALE_INS:
        return scale_in(run, subject, _SCALE_INS[subject])
    if subject in _KINDS:
        return hand_over(run, subject, _KINDS[subject], Strategy())
    return decommission(run, subject)


def _describe(result: Moved) -> str:
    moved = f"move {result.move}: {result.partitions} partitions in {result.total / 1000:.1f} s"
    return f"{moved}, switch {result.switch_median:.0f} ms, {result.ratio:.2f} x steady"


def _moves(text: str) -> int:
    if (moves := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected at least one move")
    return moves


def _run() -> None:
    options = parser("benchmarks.handover", __doc__, (*_SETTINGS, *_STRATEGIES, *_SCALE_INS), _DEFAULT)
    moves = f"on each cluster (default: 3); always one with {', '.join(_ONCE)}"
    options.add_argument("--moves", type=_moves, default=3, help=moves)
    arguments = options.parse_args()
    rows = summarise(Cells(arguments, partial(_measure, arguments.moves), summarise, _describe).run())
    show(table(rows))
    show(phases(rows))


if __name__ == "__main__":
    sys.exit(main(_run))
