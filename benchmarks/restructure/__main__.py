"""`python -m benchmarks.restructure`: a query gets one more stateful operator, and loses it again.

The query of benchmarks.recovery runs on three workers, with one secondary copy of its state (r = 1). It is stopped, and
goes on with a `dropDuplicates` of its input that is born empty. Its aggregation keeps all state. Some batches later,
the former code goes on where it was stopped. A pause is the time from the last batch of the one to the first batch of
the other, as the commit logs say, without a steady batch.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from rich.table import Table

from benchmarks.cells import Cells, Row, Say, parser, place_of, settled
from benchmarks.command import main, show
from benchmarks.stateful import QUERY_NAME, Load, Running, stream
from rhino import HandoverClient, restructure, sketch
from rhino.testing.query_watch import QueryWatch

SUBJECT = "rhino"
STEADY = 20  # batches before the change
NEW = 6  # batches of the new code


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the operators and the way back. `restructure_ms` is the part of the pause in the call."""

    state_bytes: int
    change: int
    steady_ms: float
    sketch_ms: float
    restructure_ms: float
    linked_bytes: int
    pause_ms: float
    back_ms: float


def changed(rows: DataFrame) -> DataFrame:
    """Removes rows that came before, which the source has not. The result is that of the former code."""
    return rows.dropDuplicates(["value"])


def _measure(changes: int, subject: str, load: Load, folder: Path, say: Say) -> list[Change]:
    with settled(place_of(subject), load, folder, say) as run:
        steady = float(statistics.median(batch.duration_ms for batch in run.steady(STEADY)))
        found = []
        for number in range(1, changes + 1):
            run.doing.what = f"change {number}"
            found.append(_change(run, number, folder, steady))
        return found


def _change(run: Running, number: int, folder: Path, steady_ms: float) -> Change:
    new = stream(run.spark, run.load, changed)
    began = time.monotonic()
    planned = sketch(new, run.checkpoint, folder / f"sketch-{number}", output_mode="update")
    sketch_ms = (time.monotonic() - began) * 1000
    run.wait_between_snapshots()
    run.query.stop()
    last = run.watch.committed()
    made = restructure(run.cluster.manager, run.checkpoint, folder / f"new-{number}", planned)
    target = Path(made.checkpoint)
    following = _start(new, target)
    there = _watch(run, following, target)
    there.wait_for_batch(last + NEW)
    pause_ms = _logged_ms(target, last + 1) - _logged_ms(run.checkpoint, last)
    following.stop()
    stopped = there.committed()
    run.query = _start(stream(run.spark, run.load), run.checkpoint)
    run.watch = _watch(run, run.query, run.checkpoint)
    run.watch.wait_for_batch(last + NEW)
    back_ms = _logged_ms(run.checkpoint, last + 1) - _logged_ms(target, stopped)
    with HandoverClient(run.cluster.manager) as client:
        client.forget_job(made.job, now=True)
    return Change(
        run.load.state_bytes,
        number,
        steady_ms,
        sketch_ms,
        made.duration_s * 1000,
        made.linked_bytes,
        pause_ms - steady_ms,
        back_ms - steady_ms,
    )


def _start(rows: DataFrame, checkpoint: Path) -> StreamingQuery:
    writer = rows.writeStream.queryName(QUERY_NAME).outputMode("update").format("noop")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def _watch(run: Running, query: StreamingQuery, checkpoint: Path) -> QueryWatch:
    return QueryWatch(query, checkpoint, on_poll=lambda committed: None, check=run.cluster.check)


def _logged_ms(checkpoint: Path, batch: int) -> float:
    """When the batch was written into the commit log."""
    return (checkpoint / "commits" / str(batch)).stat().st_mtime * 1000


def summarise(results: Sequence[Change]) -> list[Row]:
    """One row per size: medians."""
    names = ("steady_ms", "sketch_ms", "restructure_ms", "linked_bytes", "pause_ms", "back_ms")
    rows: list[Row] = []
    for size in sorted({result.state_bytes for result in results}):
        mine = [result for result in results if result.state_bytes == size]
        row: Row = {"state_bytes": size, "changes": len(mine), "longest_ms": max(r.pause_ms for r in mine)}
        rows.append(row | {name: statistics.median(getattr(r, name) for r in mine) for name in names})
    return rows


def table(rows: Sequence[Row]) -> Table:
    shown = Table(
        "state GB", "changes", "steady batch", "sketch", "pause", "longest", "of it the call", "linked", "back"
    )
    for row in rows:
        shown.add_row(
            f"{row['state_bytes'] / 1e9:g}",
            str(row["changes"]),
            f"{row['steady_ms']:.0f} ms",
            *(f"{row[name] / 1000:.2f} s" for name in ("sketch_ms", "pause_ms", "longest_ms", "restructure_ms")),
            f"{row['linked_bytes'] / 1e6:.0f} MB",
            f"{row['back_ms'] / 1000:.2f} s",
        )
    return shown


def _describe(result: Change) -> str:
    pauses = f"pause {result.pause_ms:.0f} ms, {result.restructure_ms:.0f} ms of it the call"
    return f"change {result.change}: {pauses}, back {result.back_ms:.0f} ms, steady batch {result.steady_ms:.0f} ms"


def _run() -> None:
    options = parser("benchmarks.restructure", __doc__, (SUBJECT,), (SUBJECT,))
    options.add_argument("--changes", type=int, default=3, help="of each cluster's query (default: 3)")
    arguments = options.parse_args()
    show(table(summarise(Cells(arguments, partial(_measure, arguments.changes), summarise, _describe).run())))


if __name__ == "__main__":
    sys.exit(main(_run))
