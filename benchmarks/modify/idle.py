"""The cost of modifications for a query without any: with Rhino's machinery for them, and without it, in turns.

Without it, the rule is not in the analyzer of the query, and the thread that looks for records does not run.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from rich.table import Table

from benchmarks.modify.changes import running
from rhino.testing import LocalCluster
from rhino.testing.query_watch import RunError

RULE = "rhino.spark.modify.ModifyRule"
THREAD = "rhino-modifications"
SLICE_WARM_UP = 3  # batches
_TIMES = re.compile(rf"{re.escape(RULE)}\s+\d+ / (?P<ns>\d+)\s+\d+ / (?P<runs>\d+)")


@dataclass(frozen=True, slots=True)
class IdleSlice:
    """Durations of the batches of one slice, in milliseconds. `present`: Rhino looks for modifications.

    `rule_us`: time of the rule in the analyzer for a batch, in microseconds, as Spark measures it. `poll_ms_per_s`:
    processor time of the thread that looks for records, in milliseconds for a second.
    """

    load: str
    present: bool
    number: int
    batches_ms: tuple[int, ...]
    rule_us: float
    poll_ms_per_s: float


def rule_times(said: str) -> tuple[int, int]:
    """Returns nanoseconds and runs of the rule, from Spark's table of all rules. (0, 0): it was not called."""
    found = _TIMES.search(said)
    return (int(found["ns"]), int(found["runs"])) if found else (0, 0)


class Machinery:
    """Rhino's machinery for modifications, in the driver of this session."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self._modifications = jvm.rhino.spark.modify.Modifications
        self._rules = self._member(spark._jsparkSession.extensions(), "postHocResolutionRuleBuilders")
        if self._rules.size() != 1:
            raise RunError(f"the session has {self._rules.size()} rules, and not only Rhino's")
        self._rule = self._rules.apply(0)
        module = self._loader.loadClass(f"{RULE.rpartition('.')[0]}.Modifications$").getField("MODULE$").get(None)
        self._executors = self._member(module, "executors")
        self._present = True

    def set(self, present: bool) -> None:
        """For queries started afterwards."""
        if present and not self._present:
            self._rules.addOne(self._rule)
            self._modifications.start(self._executors)
        elif self._present and not present:
            self._modifications.stop()
            self._rules.clear()
        self._present = present

    def rule(self) -> tuple[int, int]:
        """Returns nanoseconds and runs of the rule since the last `reset`."""
        return rule_times(str(self._jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor.dumpTimeSpent()))

    def reset(self) -> None:
        self._jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor.resetMetrics()

    def polled_ns(self) -> int:
        """Processor time of the thread so far, 0 without one."""
        times = self._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        threads = self._jvm.java.lang.Thread.getAllStackTraces().keySet()
        return sum(times.getThreadCpuTime(one.getId()) for one in threads if one.getName() == THREAD and one.isAlive())

    def _member(self, owner: Any, name: str) -> Any:
        """A private one."""
        field = owner.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field.get(owner)


def idle_slices(
    spark: SparkSession, cluster: LocalCluster, load: str, rows_per_batch: int, plan: tuple[int, int]
) -> list[IdleSlice]:
    """Two checkpoints of the query run in turns, one of them without the machinery. None has a modification.

    `plan`: slices of each, and batches of a slice that count. The first slice of each does not count.
    """
    rounds, batches = plan
    machinery, found = Machinery(spark), []
    try:
        for number in range(rounds + 1):
            for present in (False, True) if number % 2 == 0 else (True, False):
                machinery.set(present)
                checkpoint = cluster.folder / f"{load}-{'idle' if present else 'absent'}"
                with running(spark, cluster, load, rows_per_batch, checkpoint) as watch:
                    first = watch.committed() + 1 + SLICE_WARM_UP
                    watch.wait_for_batch(first - 1)
                    machinery.reset()
                    started, polled_ns = time.monotonic(), machinery.polled_ns()
                    watch.wait_for_batch(first + batches - 1)
                    seconds, polled_ns = time.monotonic() - started, machinery.polled_ns() - polled_ns
                    rule_ns, runs = machinery.rule()
                    done = [batch for batch in watch.batches(first + batches - 1) if batch.batch_id >= first]
                if (runs > 0) is not present:
                    raise RunError(f"{load}: Spark has called {RULE} {runs} times")
                if number:
                    times = tuple(batch.duration_ms for batch in done)
                    figures = rule_ns / 1e3 / batches, polled_ns / 1e6 / seconds
                    found.append(IdleSlice(load, present, number, times, *figures))
    finally:
        machinery.set(True)
    return found


def idle_of(found: Sequence[IdleSlice]) -> list[dict[str, Any]]:
    """One row per load: medians of all batches, and the median of the ratios of slices side by side."""
    rows = []
    for load in dict.fromkeys(one.load for one in found):
        mine = [one for one in found if one.load == load]
        by = {(one.present, one.number): statistics.median(one.batches_ms) for one in mine}
        numbers = sorted({number for _, number in by})
        ratios = [by[True, number] / by[False, number] for number in numbers]
        row: dict[str, Any] = {"load": load, "slices": len(numbers)}
        row |= {f"{name}_ms": statistics.median(by[its, n] for n in numbers) for its, name in _NAMES.items()}
        row |= {"cost_ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
        for figure in ("rule_us", "poll_ms_per_s"):
            row[figure] = statistics.median(getattr(one, figure) for one in mine if one.present)
        rows.append(row)
    return rows


_NAMES = {False: "absent", True: "idle"}


def idle_table(rows: Sequence[dict[str, Any]]) -> Table:
    """For people."""
    shown = Table("load", "slices", "without Rhino's part", "with it", "ratio", "of the slices", "rule", "thread")
    for row in rows:
        times = (f"{row[name]:.0f} ms" for name in ("absent_ms", "idle_ms"))
        spread = f"{row['lowest']:.3f} to {row['highest']:.3f}"
        own = f"{row['rule_us']:.0f} us a batch", f"{row['poll_ms_per_s']:.2f} ms/s"
        shown.add_row(row["load"], str(row["slices"]), *times, f"{row['cost_ratio']:.3f}", spread, *own)
    return shown
