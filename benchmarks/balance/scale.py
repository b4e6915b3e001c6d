"""Part `scale`: the load rises and falls, and workers come and go with it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from benchmarks.balance.query import Load, ramp
from benchmarks.balance.running import Place, Say, Seen, running
from benchmarks.balance.scaler import Scaled, Scaler

IN_TIME = 0.95  # the bar: of the batches within the trigger interval
WARM_UP = 10  # the first batches, in JVMs that have just started, do not count


@dataclass(frozen=True, slots=True)
class Followed:
    """`workers`: their numbers, one after the other. `turns`: how often these began to rise or fall.

    `in_time`: the part of the batches after the first ten within the trigger interval. `late`: the number of the
    others. `added_s`: the longest time from a wish for more workers until they had their share. `removed_s`: from one
    for fewer until one was gone.
    """

    workers: tuple[int, ...]
    turns: int
    in_time: float
    late: int
    longest_s: float
    added_s: float | None
    removed_s: float | None
    rows: int
    missing: int
    extra: int

    def passed(self, least: int, most: int) -> bool:
        there_and_back = self.workers[0] == self.workers[-1] == least and max(self.workers) == most
        return there_and_back and self.turns == 2 and self.in_time >= IN_TIME and self.missing == self.extra == 0


@dataclass(frozen=True, slots=True)
class Slope:
    """`low` and `high`: auctions of a batch. `steady` and `climb`: batches of each part of the slope."""

    low: int
    high: int
    steady: int
    climb: int
    hold_ms: int

    def load(self) -> Load:
        return Load(ramp(self.low, self.high, self.steady, self.climb), self.hold_ms)


def measure(folder: Path, slope: Slope, place: Place, say: Say) -> tuple[Seen, list[Scaled]]:
    """Runs the query over the slope, with a scaler beside it. Raises RhinoError when one of them fails.

    The scaler begins when the load begins to rise: newly started JVMs are slow, and this looks like load.
    """
    load = slope.load()

    def polled(committed: int) -> None:
        rows = load.sizes[committed - 1] if 0 < committed < load.batches else 0
        say(f"scale: batch {committed} of {load.batches - 1}, {rows} rows")

    with running(folder, load, place, say, polled) as run, ThreadPoolExecutor(1) as pool:
        run.watch.wait_for_batch(slope.steady)
        scaler = Scaler(run.cluster, run.spark, place.workers, place.most)
        doing = pool.submit(scaler.run)
        run.checks.append(lambda: doing.result() if doing.done() else None)
        try:
            run.watch.wait_for_batch(load.batches - 1)
        finally:
            scaler.stop()
        run.watch.wait_for(doing.done)
        return run.finish(), scaler.done


def figures(seen: Seen, done: Sequence[Scaled], workers: int, trigger_s: float) -> Followed:
    """The figures of the run over the slope. `workers`: at the beginning."""
    counts = tuple(count for count, _ in groupby([workers, *(one.workers for one in done)]))
    steps = [after > before for before, after in pairwise(counts)]
    late = [batch for batch in seen.batches if batch.batch_id >= WARM_UP and batch.duration_ms > trigger_s * 1000]
    return Followed(
        workers=counts,
        turns=len(list(groupby(steps))),
        in_time=seen.in_time(trigger_s, WARM_UP),
        late=len(late),
        longest_s=max(batch.duration_ms for batch in seen.batches if batch.batch_id >= WARM_UP) / 1000,
        added_s=_longest(done, "growing", "moved"),
        removed_s=_longest(done, "draining", "removed"),
        rows=seen.verdict.rows,
        missing=seen.verdict.missing,
        extra=seen.verdict.extra,
    )


def _longest(done: Sequence[Scaled], first: str, last: str) -> float | None:
    """The longest time in seconds from a note `first` to the next note `last`; None: there was none."""
    found, began_ms = list[float](), 0
    for one in done:
        if one.what == first:
            began_ms = one.at_ms
        elif one.what == last:
            found.append((one.at_ms - began_ms) / 1000)
    return max(found, default=None)
