"""Code that takes over a running query, in the same driver or in a process of its own, and code that fails."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.applications import Application, application
from benchmarks.stateful import QUERY_NAME, Load, Running, stream
from rhino import Outcome, Supervised, Trial, supervise
from rhino.testing.query_watch import QueryWatch, RunError
from rhino_core.errors import PreconditionError
from spark_connector.restart.core import End, Phase
from spark_connector.restart.folder import RestartFolder

APPLICATION = "benchmarks.restart.application"
STEADY = 20  # batches before a change
NEW = 6  # batches after it
TRIAL = Trial(batches=3, give_up_s=120, rehearse_s=90)
WAIT_S = 300.0
POLL_S = 0.02
FIRST = "true"  # the code of the first application: a condition for rows


@dataclass(frozen=True, slots=True)
class Change:
    """Code that takes over, and code that fails. `grant_ms`: from the last batch to the grant, a part of the pause.

    `asked_ms`: until the grant, during which the former code runs: the start of the process if it is another one, the
    rehearsal, and the wait for the end of the batch.
    """

    state_bytes: int
    change: int
    steady_ms: float
    asked_ms: float
    grant_ms: float
    pause_ms: float
    back_ms: float


def other_code(number: int) -> str:
    """Other Java code, the same result."""
    return f"value >= {-number}"


def failing_code(load: Load) -> str:
    """Fails once the state is built up."""
    return f"if(value >= {load.building_rows}, raise_error('fails'), true)"


def begin(spark: SparkSession, load: Load, checkpoint: Path, code: str) -> Supervised:
    """Starts the query with its code, or asks for it. Returns at once."""
    rows = stream(spark, load, lambda rows: rows.where(code))
    writer: DataStreamWriter = rows.writeStream.queryName(QUERY_NAME).format("noop")
    return supervise(writer, str(checkpoint), output_mode="update", trial=TRIAL)


class Changing:
    """The query of `run`, whose code is changed `changes` times. `processes`: by another process each time."""

    def __init__(self, run: Running, processes: bool) -> None:
        self._run = run
        self._processes = processes
        self._restarts = RestartFolder(run.checkpoint)
        run.query.stop()
        self._present = self._begin(FIRST)

    def change(self, number: int) -> Change:
        """Replaces the code, and fails to replace it. Raises RunError if anything ends in another way."""
        run = self._run
        run.watch.wait_for_batch(run.watch.committed() + STEADY + NEW)
        steady = float(statistics.median(batch.duration_ms for batch in run.steady(STEADY)))
        if self._processes:  # the process that takes over gives the query back at the end
            run.wait_between_snapshots()
            back = self._back()
            run.watch.wait_for_batch(run.watch.committed() + NEW)
            asked, grant, pause = self._by_a_process(number)
        else:
            asked, grant, pause = self._in_this_driver(number)
            back = self._back()
        return Change(run.load.state_bytes, number, steady, asked, grant, pause - steady, back - steady)

    def stop(self) -> None:
        self._present.stop()

    # ---- the code is replaced

    def _in_this_driver(self, number: int) -> tuple[float, float, float]:
        self._run.wait_between_snapshots()
        former, began_ms = self._present, time.time() * 1000
        self._present = self._begin(other_code(number))
        return self._replaced(former, began_ms)

    def _by_a_process(self, number: int) -> tuple[float, float, float]:
        run = self._run
        run.wait_between_snapshots()
        former, began_ms = self._present, time.time() * 1000
        with application(run, APPLICATION, *self._arguments(other_code(number))) as new:
            found = self._replaced(former, began_ms, new)
            self._present = self._begin(FIRST)
            if (outcome := new.outcome(WAIT_S)) != f"ended {Outcome.REPLACED}":
                raise RunError(f"the other application has {outcome}")
        return found

    def _replaced(
        self, former: Supervised, began_ms: float, other: Application | None = None
    ) -> tuple[float, float, float]:
        """Waits until other code has the query. Returns the milliseconds until the grant, up to it, and of the pause.

        Both pauses include a batch. `other`: the process with the other code.
        """
        run, deadline = self._run, time.monotonic() + WAIT_S
        while (outcome := former.wait(POLL_S)) is None and time.monotonic() < deadline:
            if other is not None and not other.running:
                raise RunError(f"the other application has {other.outcome(WAIT_S)}: the former code still runs")
        if outcome is not Outcome.REPLACED:
            raise RunError(f"the former code still runs after {WAIT_S:g} s: it is {former.phase}")
        granted = _written_ms(self._restarts.path / "answers" / str(self._restarts.read()[-1].number))
        last = _last_before(run.checkpoint, granted)
        ended = _logged_ms(run.checkpoint, last)
        run.watch.wait_for_batch(last + 1)
        pause = _logged_ms(run.checkpoint, last + 1) - ended
        run.watch.wait_for_batch(last + NEW)
        return granted - began_ms, granted - ended, pause

    # ---- code that fails

    def _back(self) -> float:
        """Code that fails takes over. Returns the milliseconds until the present code has run a batch."""
        run = self._run
        failing = failing_code(run.load)
        if self._processes:
            with application(run, APPLICATION, *self._arguments(failing)) as other:
                outcome = other.outcome(WAIT_S)
        else:
            outcome = outcome_of(begin(run.spark, run.load, run.checkpoint, failing), WAIT_S)
        newest = self._restarts.read()[-1]
        if newest.end is not End.RETURNED:
            raise RunError(f"the code that fails has {outcome}, and has not had the query")
        ended = _written_ms(self._restarts.path / "ends" / str(newest.number))
        last = _last_before(run.checkpoint, ended)
        self._has_it(self._present)
        run.watch.wait_for_batch(last + NEW)
        return _logged_ms(run.checkpoint, last + 1) - ended

    def _arguments(self, code: str) -> tuple[str, ...]:
        return str(self._run.load.state_bytes), str(self._run.checkpoint), code

    # ---- the query in this driver

    def _begin(self, code: str) -> Supervised:
        """Returns when the code runs, and is confirmed."""
        begun = begin(self._run.spark, self._run.load, self._run.checkpoint, code)
        self._has_it(begun)
        return begun

    def _has_it(self, supervised: Supervised) -> None:
        run, deadline = self._run, time.monotonic() + WAIT_S
        while supervised.phase is not Phase.RUNNING:
            if supervised.phase is Phase.DONE:
                supervised.wait()
                raise RunError("the query has ended")
            if time.monotonic() > deadline:
                raise RunError(f"the query is {supervised.phase} after {WAIT_S:g} s, and not {Phase.RUNNING}")
            time.sleep(POLL_S)
        assert supervised.query is not None
        run.query = supervised.query
        run.watch = QueryWatch(run.query, run.checkpoint, on_poll=lambda committed: None, check=run.cluster.check)


def outcome_of(supervised: Supervised, timeout_s: float | None = None) -> str:
    """Waits for the end of a supervised query. Returns "ended ..." or "failed: ...", and "ended None" if it runs on."""
    try:
        return f"ended {supervised.wait(timeout_s)}"
    except PreconditionError as error:
        return f"failed: {' '.join(str(error).split())}"


def _last_before(checkpoint: Path, moment_ms: float) -> int:
    """The newest batch that was committed before a moment of the wall clock."""
    batches = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    return max(batch for batch in batches if _logged_ms(checkpoint, batch) <= moment_ms)


def _logged_ms(checkpoint: Path, batch: int) -> float:
    return _written_ms(checkpoint / "commits" / str(batch))


def _written_ms(path: Path) -> float:
    return path.stat().st_mtime * 1000
