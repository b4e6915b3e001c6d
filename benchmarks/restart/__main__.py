"""`python -m benchmarks.restart`: other code takes over a running query, and code that fails gives it back.

The query of benchmarks.recovery runs on three workers, with one secondary copy of its state (r = 1), by `supervise`.
Other code takes over in the same driver. A pause is the time from the last batch of the one to the first batch of the
other, as the commit log says, without a steady batch. Then code takes over that fails in its first batch. The way back
is the time from its end to the first batch of the former code, without a steady batch.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from rich.table import Table

from benchmarks.cells import Cells, Row, Say, parser, place_of, settled
from benchmarks.command import main, show
from benchmarks.stateful import QUERY_NAME, Load, Running, stream
from rhino import Outcome, Supervised, Trial, supervise
from rhino.testing.query_watch import QueryWatch, RunError
from rhino_core.errors import PreconditionError
from spark_connector.restart.core import Phase
from spark_connector.restart.folder import RestartFolder

SUBJECT = "rhino"
STEADY = 20  # batches before a change
NEW = 6  # batches after it
TRIAL = Trial(batches=3, give_up_s=120, rehearse_s=30)
WAIT_S = 300.0
POLL_S = 0.02
FIGURES = ("steady_ms", "asked_ms", "grant_ms", "pause_ms", "back_ms")


@dataclass(frozen=True, slots=True)
class Change:
    """Code that takes over, and code that fails. `grant_ms`: from the last batch to the grant, a part of the pause.

    `asked_ms`: the rehearsal and the wait for the end of the batch, during which the former code runs.
    """

    state_bytes: int
    change: int
    steady_ms: float
    asked_ms: float
    grant_ms: float
    pause_ms: float
    back_ms: float


def _measure(changes: int, subject: str, load: Load, folder: Path, say: Say) -> list[Change]:
    with settled(place_of(subject), load, folder, say) as run:
        run.query.stop()
        present = _begin(run, lambda rows: rows)
        found = []
        for number in range(1, changes + 1):
            run.doing.what = f"change {number}"
            change, present = _change(run, number, present)
            found.append(change)
        present.stop()
        return found


def _begin(run: Running, code: Callable[[DataFrame], DataFrame]) -> Supervised:
    """Returns when the code runs, and is confirmed."""
    writer = stream(run.spark, run.load, code).writeStream.queryName(QUERY_NAME).format("noop")
    begun = supervise(writer, str(run.checkpoint), output_mode="update", trial=TRIAL)
    _wait(begun, Phase.RUNNING)
    assert begun.query is not None
    run.query = begun.query
    run.watch = QueryWatch(begun.query, run.checkpoint, on_poll=lambda committed: None, check=run.cluster.check)
    return begun


def _wait(supervised: Supervised, phase: Phase) -> None:
    deadline = time.monotonic() + WAIT_S
    while supervised.phase is not phase:
        if supervised.phase is Phase.DONE:
            supervised.wait()
            raise RunError("the query has ended")
        if time.monotonic() > deadline:
            raise RunError(f"the query is {supervised.phase} after {WAIT_S:g} s, and not {phase}")
        time.sleep(POLL_S)


def _change(run: Running, number: int, former: Supervised) -> tuple[Change, Supervised]:
    run.watch.wait_for_batch(run.watch.committed() + STEADY + NEW)
    steady = float(statistics.median(batch.duration_ms for batch in run.steady(STEADY)))
    run.wait_between_snapshots()
    began_ms, restarts = time.time() * 1000, RestartFolder(run.checkpoint)
    new = _begin(run, lambda rows: rows.where(f"value >= {-number}"))  # other Java code, the same result
    if former.wait(WAIT_S) is not Outcome.REPLACED:
        raise RunError("the former code still runs")
    asked = restarts.read()[-1].number
    granted = _written_ms(restarts.path / "answers" / str(asked))
    last = _last_before(run.checkpoint, granted)
    pause = _written_ms(run.checkpoint / "commits" / str(last + 1)) - _logged_ms(run.checkpoint, last)
    run.watch.wait_for_batch(last + NEW)
    back = _back(run, new)
    return (
        Change(
            run.load.state_bytes,
            number,
            steady,
            granted - began_ms,
            granted - _logged_ms(run.checkpoint, last),
            pause - steady,
            back - steady,
        ),
        new,
    )


def _back(run: Running, present: Supervised) -> float:
    """Code that fails once the state is built up. Returns the milliseconds until the present code has run a batch."""
    fails = f"if(value >= {run.load.building_rows}, raise_error('fails'), value) as value"
    writer = stream(run.spark, run.load, lambda rows: rows.selectExpr(fails)).writeStream.queryName(QUERY_NAME)
    failing = supervise(writer.format("noop"), str(run.checkpoint), output_mode="update", trial=TRIAL)
    try:
        failing.wait(WAIT_S)
        raise RunError(f"the code that fails has not failed within {WAIT_S:g} s: it is {failing.phase}")
    except PreconditionError:
        restarts = RestartFolder(run.checkpoint)
    ended = _written_ms(restarts.path / "ends" / str(restarts.read()[-1].number))
    last = _last_before(run.checkpoint, ended)
    _wait(present, Phase.RUNNING)
    assert present.query is not None
    run.query = present.query
    run.watch = QueryWatch(present.query, run.checkpoint, on_poll=lambda committed: None, check=run.cluster.check)
    run.watch.wait_for_batch(last + NEW)
    return _logged_ms(run.checkpoint, last + 1) - ended


def _last_before(checkpoint: Path, moment_ms: float) -> int:
    """The newest batch that was committed before a moment of the wall clock."""
    batches = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    return max(batch for batch in batches if _logged_ms(checkpoint, batch) <= moment_ms)


def _logged_ms(checkpoint: Path, batch: int) -> float:
    return _written_ms(checkpoint / "commits" / str(batch))


def _written_ms(path: Path) -> float:
    return path.stat().st_mtime * 1000


def summarise(results: Sequence[Change]) -> list[Row]:
    """One row per size: medians."""
    rows: list[Row] = []
    for size in sorted({result.state_bytes for result in results}):
        mine = [result for result in results if result.state_bytes == size]
        row: Row = {"state_bytes": size, "changes": len(mine), "longest_ms": max(r.pause_ms for r in mine)}
        rows.append(row | {name: statistics.median(getattr(r, name) for r in mine) for name in FIGURES})
    return rows


def table(rows: Sequence[Row]) -> Table:
    shown = Table("state GB", "changes", "steady batch", "pause", "longest", "until granted", "back")
    for row in rows:
        shown.add_row(
            f"{row['state_bytes'] / 1e9:g}",
            str(row["changes"]),
            f"{row['steady_ms']:.0f} ms",
            *(f"{row[name] / 1000:.2f} s" for name in ("pause_ms", "longest_ms", "asked_ms", "back_ms")),
        )
    return shown


def _describe(result: Change) -> str:
    pauses = f"pause {result.pause_ms:.0f} ms, back {result.back_ms:.0f} ms"
    return f"change {result.change}: {pauses}, steady batch {result.steady_ms:.0f} ms"


def _run() -> None:
    options = parser("benchmarks.restart", __doc__, (SUBJECT,), (SUBJECT,))
    options.add_argument("--changes", type=int, default=3, help="of each cluster's query (default: 3)")
    arguments = options.parse_args()
    show(table(summarise(Cells(arguments, partial(_measure, arguments.changes), summarise, _describe).run())))


if __name__ == "__main__":
    sys.exit(main(_run))
