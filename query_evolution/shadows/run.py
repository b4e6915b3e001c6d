"""`shadow`: new code runs the batches of a live query on a branch of it, and both outputs are compared."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from query_evolution.shadows.batches import keep, let_go, run_batch
from query_evolution.shadows.comparing import CompareRules, compare
from query_evolution.shadows.following import Follower, LiveBatch, LiveBatches
from query_evolution.shadows.outputs import LiveOutput, live_output
from query_evolution.shadows.report import ComparedBatch, Difference, Failure, Results, ShadowReport
from rhino_core.errors import InvalidRequestError
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.running_session import check_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IDLE_S = 60.0
ERROR_MAX = 4000  # characters of an error that is kept
ALL = CompareRules()


def shadow(
    rows: DataFrame,
    live: Path,
    branch: Path,
    output: LiveOutput | Callable[[SparkSession, int], DataFrame | None],
    *,
    output_mode: str = "append",
    rules: CompareRules = ALL,
    batches: int | None = None,
    idle_s: float = IDLE_S,
) -> ShadowReport:
    """Runs the committed batches of the live query with new code on a branch of it, and compares both outputs.

    `rows`: the streaming DataFrame of the new code, without its sink. `live`: the checkpoint of the live query. It is
    only read. `branch`: the checkpoint made by `branch`. `output`: the rows of the live query, a `FileSink`, a
    `Recomputed`, or a function of the session and the number of a batch.

    A batch has the same rows, watermark and time in both queries. It runs after the live query has committed it. Ends
    after `batches` batches, when the live query has committed none for `idle_s` seconds, or when the new code fails:
    the report says so. A later call goes on at the end of this one. Returns the report of all calls.

    Raises PreconditionError if the branch does not follow the live query, or the live query's logs do not have a batch
    any more. Raises it also if the outputs cannot be compared, and for a DataFrame of Spark Connect. Raises
    ConflictError for a promoted branch. The errors of `output` are raised, too.
    """
    check_rows(rows)
    if batches is not None and batches < 1:
        raise InvalidRequestError(f"batches {batches}: must be at least 1")
    follower = Follower(QueryCheckpoint(live), QueryCheckpoint(branch))
    of_live = live_output(output)
    of_live.check(follower.live)
    run = _Run(rows, follower, of_live, output_mode, rules)
    first = follower.next_batch()
    run.results.fail(None)
    with LiveBatches(follower.live, first).watched() as found:
        number = first
        while batches is None or number < first + batches:
            batch = found.take(number, idle_s)
            if batch is None or not run.batch(batch):
                break
            number += 1
    return run.results.report()


class _Run:
    def __init__(
        self, rows: DataFrame, follower: Follower, output: LiveOutput, output_mode: str, rules: CompareRules
    ) -> None:
        self.results = Results(follower.branch)
        self._rows = rows
        self._follower = follower
        self._output = output
        self._output_mode = output_mode
        self._rules = rules

    def batch(self, batch: LiveBatch) -> bool:
        """Runs and compares one batch. Notes a failure of the new code, and returns false."""
        from pyspark.errors import StreamingQueryException

        comparing: list[BaseException] = []

        def sink(rows: DataFrame, number: int) -> None:
            begun = time.monotonic()
            kept = keep(rows)
            seconds = time.monotonic() - begun
            try:
                self._compare(kept, batch, seconds)
            except BaseException as error:
                comparing.append(error)
                raise
            finally:
                let_go(kept)

        self._output.begin(batch)
        self._follower.plan(batch)
        try:
            run_batch(self._rows, self._follower.branch, self._output_mode, batch.number, sink)
        except StreamingQueryException as error:
            if comparing:
                raise comparing[0] from None
            self.results.fail(Failure(batch.number, str(error)[:ERROR_MAX]))
            return False
        finally:
            self._output.end()
        return True

    def _compare(self, kept: DataFrame, batch: LiveBatch, seconds: float) -> None:
        of_live = self._output.rows(self._rows.sparkSession, batch.number, kept.schema)
        found = compare(of_live, kept, self._rules)
        self.results.add(
            ComparedBatch(
                batch.number,
                found.live_rows,
                found.shadow_rows,
                found.missing,
                found.surplus,
                round(batch.seconds, 3),
                round(seconds, 3),
                tuple(Difference(batch.number, *pair) for pair in found.examples),
            )
        )
