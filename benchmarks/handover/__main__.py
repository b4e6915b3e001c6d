"""`python -m benchmarks.handover`: batches before, during and after a planned move of state.

`direct`: half of a worker's virtual nodes to a worker that holds nothing of them (r = 0). `assisted`: to one that
holds a replica (r = 1). `stock`: Spark's own provider with the query checkpoint on a local path, and the smallest
planned move that it has: one executor is decommissioned, with all its partitions. Compare subjects within a run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.cells import Cells, Say, parser, settled
from benchmarks.command import main, show
from benchmarks.handover.move import Moved, decommission, hand_over
from benchmarks.handover.summary import summarise, table
from benchmarks.stateful import Load
from spark_connector import MoveKind

_SETTINGS = {
    "direct": {"spark.rhino.replicationFactor": "0"},
    "assisted": {"spark.rhino.replicationFactor": "1"},
    "stock": {"spark.decommission.enabled": "true"},
}
_KINDS = {"direct": MoveKind.DIRECT, "assisted": MoveKind.CHECKPOINT_ASSISTED}


def _measure(subject: str, load: Load, folder: Path, say: Say) -> Moved:
    with settled(subject, load, folder, say, _SETTINGS[subject]) as run:
        if subject in _KINDS:
            return hand_over(run, subject, _KINDS[subject])
        return decommission(run, subject)


def _describe(result: Moved) -> str:
    return f"{result.partitions} partitions in {result.total / 1000:.1f} s, {result.added_pause:.0f} ms of added pause"


def _run() -> None:
    arguments = parser("benchmarks.handover", __doc__, tuple(_SETTINGS), tuple(_SETTINGS)).parse_args()
    show(table(summarise(Cells(arguments, _measure, summarise, _describe).run())))


if __name__ == "__main__":
    sys.exit(main(_run))
