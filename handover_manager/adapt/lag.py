"""The lag of a query behind its sources, from their reports with each batch.

A backlog read in batches of limited size (`maxOffsetsPerTrigger`) looks ordinary by input rows. A source may report
several measures, and each is followed in its own unit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from rhino_model.loads import SourceLag

KEPT = 32  # windows
BEHIND = 4.0  # usual batches that a source has to be behind before it counts
CAUGHT_UP = 1.0  # usual batches at which it counts no more
GROWING = 3  # windows at whose ends a lag has to have risen to count as growing
MATTERS = 1.2  # the factor by which it has to have risen in these

Measure = tuple[str, str]  # source and unit


class Lags:
    """The lag of the sources of one run, window by window.

    `newest`: as the newest batch has it. `batches`: the largest lag of a source, in usual batches; 0: none, or the
    sources do not say how much a batch reads.
    """

    def __init__(self) -> None:
        self.newest: tuple[SourceLag, ...] = ()
        self.batches = 0.0
        self._why = ""
        self._ends: dict[Measure, deque[float]] = {}  # what is left to read at the ends of windows
        self._read: dict[Measure, deque[float]] = {}  # by a batch, in windows in which nothing was behind
        self._was_behind: deque[bool] = deque(maxlen=KEPT)

    @property
    def backlog(self) -> str:
        """Why the query is catching up, for people; empty: it is not.

        A query behind in most of the newest windows is not catching up: its lag is permanent.
        """
        return "" if sum(self._was_behind) > KEPT / 2 else self._why

    def add(self, batches: Sequence[Sequence[SourceLag]]) -> None:
        """Adds a window. `batches`: the report of each of its batches, oldest first."""
        self.newest = tuple(batches[-1])
        series = dict[Measure, list[SourceLag]]()
        for one in (one for batch in batches for one in batch):
            series.setdefault((one.source, one.unit), []).append(one)
        reads = {measure: read for measure, seen in series.items() if (read := _mean_read(seen)) > 0}
        usual = {measure: median(self._read.get(measure) or [read]) for measure, read in reads.items()}
        self.batches = max((series[measure][-1].behind / most for measure, most in usual.items()), default=0.0)
        late = [seen[-1] for measure, seen in series.items() if self._is_late(measure, seen, usual.get(measure, 0.0))]
        self._why = "; ".join(_told(one, usual.get((one.source, one.unit), 0.0)) for one in late)
        self._was_behind.append(bool(late))
        for measure, read in reads.items() if not late else ():
            self._read.setdefault(measure, deque(maxlen=KEPT)).append(read)

    def _is_late(self, measure: Measure, seen: Sequence[SourceLag], usual: float) -> bool:
        """Whether the measure shows a backlog in a window. `usual`: the usual input of a batch; 0: unknown."""
        ends = self._ends.setdefault(measure, deque(maxlen=GROWING))
        ends.append(seen[-1].behind)
        rising = len(ends) == GROWING and all(after > before for before, after in pairwise(ends))
        grows, most = rising and ends[-1] > MATTERS * ends[0], max(one.behind for one in seen)
        if usual <= 0:
            return grows
        return most > usual * (CAUGHT_UP if self._why or grows else BEHIND)


def _mean_read(seen: Sequence[SourceLag]) -> float:
    """Mean input of a batch; 0: the source does not say."""
    known = [one.read for one in seen if one.read > 0]
    return fmean(known) if known else 0.0


def _told(lag: SourceLag, usual: float) -> str:
    often = f", or {lag.behind / usual:.1f} usual batches" if usual > 0 else ""
    return f"source {lag.source} is {lag.behind:.0f} {lag.unit} behind{often}"
