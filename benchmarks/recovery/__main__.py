"""`python -m benchmarks.recovery`: kill -9 of a whole worker, Rhino beside Spark's own RocksDB provider.

Each measurement has a cluster of its own: three workers, six partitions, state built up, small batches, then the kill
of one worker (executor, Spark worker, and the sidecar if there is one) right after a batch was logged. The query
checkpoint is on a local path. "-cut": nothing is killed, the worker's link loses every packet from one moment on, so no
connection is reset and only time tells (needs root). Files to be loaded are in the page cache, as on a node with memory
to spare; "-cold": on the disk only. All have the same Spark settings but these: a task waits for a slot beside its
state (spark.locality.wait) for 3 s with Rhino, and for 0.5 s with Spark's own provider, because this suits it better;
"rhino-500ms" and "stock-3s" the other way round. "stock-cut" drops silent executors after 8 s.
Compare subjects within a run; absolute figures depend on the machine.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmarks.cells import Cells, Say, parser, place_of, settled
from benchmarks.command import main, show
from benchmarks.recovery.loss import Recovery, lose_and_recover
from benchmarks.recovery.summary import summarise, table
from benchmarks.stateful import Load

SUBJECTS = ("rhino", "stock", "rhino-cut", "stock-cut", "rhino-cold", "stock-cold", "rhino-500ms", "stock-3s")
# Spark's own defaults are 120 s and 60 s. Somebody who cares sets less.
STOCK_CUT = {"spark.storage.blockManagerHeartbeatTimeoutMs": "8s", "spark.network.timeoutInterval": "1s"}
_WAIT = re.compile(r"-(\d+m?s)$")


def _measure(subject: str, load: Load, folder: Path, say: Say) -> list[Recovery]:
    wait = _WAIT.search(subject)
    extra = {"spark.locality.wait": wait[1]} if wait else STOCK_CUT if subject == "stock-cut" else None
    with settled(place_of(subject), load, folder, say, extra) as run:
        return [lose_and_recover(run, subject)]


def _describe(result: Recovery) -> str:
    return f"next batch done {result.next_batch / 1000:.2f} s after the loss"


def _run() -> None:
    options = parser("benchmarks.recovery", __doc__, SUBJECTS, SUBJECTS[:2])
    arguments = options.parse_args()
    rows = summarise(Cells(arguments, _measure, summarise, _describe).run())
    show(table(rows))


if __name__ == "__main__":
    sys.exit(main(_run))
