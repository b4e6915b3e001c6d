"""The sellers become uneven while the load rises, and the cluster balances the query by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from benchmarks.balance.observed import WINDOW, balanced_for_good, windows
from benchmarks.balance.query import Load
from benchmarks.balance.running import Place, Say, Seen, run
from rhino_model.decisions import Outcome

BAND = 0.2  # of `rhino manager --adaptation-band`
BALANCED_S = 60.0  # the bar
RISE = 1.5  # of the load; twice as much would count as a backlog


@dataclass(frozen=True, slots=True)
class Stepped:
    """Times are seconds from the start of the first batch with Zipf's sellers. None: it never happened.

    `before`, `worst`, `max_over_mean`: imbalance of the workers in the last window before the step, in the worst one
    after it, and the median from `balanced_s` on (at the end, if it is None). `least`: the best possible with the
    heaviest virtual node, the median of the same windows. `moving_s`: the first plan begins. `balanced_s`: the end of
    the first window within the band without a later act of adaptation or a reason for one. `within`: the part of the
    windows from then on within it. `plans`, `moves`, `moved_bytes`: after the step. `in_time`: the part of the batches
    after the step within the trigger interval.
    """

    before: float
    worst: float
    max_over_mean: float
    least: float
    moving_s: float | None
    balanced_s: float | None
    within: float | None
    plans: int
    moves: int
    moved_bytes: int
    in_time: float
    rows: int
    missing: int
    extra: int

    @property
    def passed(self) -> bool:
        return self.balanced_s is not None and self.balanced_s <= BALANCED_S and self.missing == self.extra == 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """`rows` of a batch before the step. `before` and `after` are numbers of batches."""

    rows: int
    hold_ms: int
    before: int
    after: int

    def load(self) -> Load:
        sizes = (*(self.rows,) * self.before, *(round(self.rows * RISE),) * self.after)
        return Load(sizes, self.hold_ms, zipf_from=self.before + 1)


def measure(folder: Path, sizes: Sizes, place: Place, say: Say) -> Seen:
    """Runs the query through the step. Raises RunError when it fails."""
    load = sizes.load()

    def polled(committed: int) -> None:
        sellers = "Zipf's" if committed >= sizes.before else "even"
        say(f"step: {sellers} sellers, batch {committed} of {load.batches - 1}")

    return run(folder, load, place, say, polled)


def figures(seen: Seen, load: Load, trigger_s: float) -> Stepped:
    """The figures of the run through the step."""
    first = load.zipf_from
    began_ms = seen.batch(first).started_ms
    found = windows(seen.heard)
    before = [window for window in found if window.first_batch + WINDOW <= first]
    after = [window for window in found if window.first_batch >= first]
    plans = [one for one in seen.decisions if one.outcome is Outcome.MOVING and one.started_ms >= began_ms]
    acted_ms = plans[-1].started_ms if plans else began_ms
    good = balanced_for_good([window for window in after if window.ended_ms > acted_ms], 1 + BAND)
    end = [window for window in after if good is not None and window.first_batch >= good.first_batch] or after[-WINDOW:]
    handovers = [one for one in seen.handovers if one.started_ms >= began_ms]
    return Stepped(
        before=before[-1].max_over_mean,
        worst=max(window.max_over_mean for window in after),
        max_over_mean=median(window.max_over_mean for window in end),
        least=median(window.least for window in end),
        moving_s=(plans[0].started_ms - began_ms) / 1000 if plans else None,
        balanced_s=(good.ended_ms - began_ms) / 1000 if good is not None else None,
        within=fmean(window.max_over_mean <= 1 + BAND for window in end) if good is not None else None,
        plans=len(plans),
        moves=sum(len(one.moves) for one in plans),
        moved_bytes=sum(one.bytes_moved for one in handovers),
        in_time=seen.in_time(trigger_s, first),
        rows=seen.verdict.rows,
        missing=seen.verdict.missing,
        extra=seen.verdict.extra,
    )
