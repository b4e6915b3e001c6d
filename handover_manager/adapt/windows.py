"""The load of a query, window by window: the mean and the longest task time of each virtual node in a few batches.

The mean is balanced: the longest ones are noisy, and noise hides imbalance and makes moves useless. The longest ones
are for the number of workers, since batches with a peak have to be in time, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from statistics import fmean, median, variance
from typing import NamedTuple

from handover_manager.adapt.lag import Lags
from handover_manager.plan.work import Work
from rhino_core.ids import VirtualNode
from rhino_model.loads import SourceLag

ROWS_KEPT = 32  # windows whose input rows are kept: a backlog may last long
CATCHING_UP = 2.0  # a batch with so many times the usual input rows may be a backlog
TREND_WINDOWS = 4  # windows that rise before a forecast follows them: three rise by chance once in six times
TREND_NEWEST = 3  # windows whose rise has to exceed chance. A step of the load before them lifts all loads once
TREND_ERRORS = 3.0  # standard errors of a difference that chance hardly ever reaches
TREND_MAX = 2.0  # a forecast is at most so many times the usual load


@dataclass(frozen=True, slots=True)
class Window:
    """Some batches in a row under one map.

    `load_s`, `peak_s`: the mean and the longest task time of each virtual node, in seconds. `desired`: the worker of
    each. `rows`: the most input rows of a batch. `batch_s`: the longest batch, in seconds. Both are 0 if the driver
    does not report them. `trigger_s`: the trigger interval in seconds; 0: none. `error_s`: the standard errors of
    `load_s`.
    """

    load_s: Mapping[VirtualNode, float]
    peak_s: Mapping[VirtualNode, float]
    desired: Mapping[VirtualNode, str]
    rows: int = 0
    batch_s: float = 0.0
    trigger_s: float = 0.0
    error_s: Mapping[VirtualNode, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """A logged batch: the map of its run, the work of its tasks, and the rest of the driver's report."""

    run_id: str
    configuration_epoch: int
    work: Mapping[VirtualNode, Work]
    rows: int = 0
    batch_s: float = 0.0
    trigger_s: float = 0.0
    lags: tuple[SourceLag, ...] = ()


class Windows:
    """The newest windows of one query, oldest first.

    The first batch of a run or under a map is left out: its tasks load state.
    """

    def __init__(self, batches: int, kept: int, usual_rows: float = 0.0) -> None:
        """`batches`: of a window. `kept`: windows. `usual_rows`: as known before; 0: unknown."""
        self._batches = batches
        self._former_rows = usual_rows
        self._open: list[Batch] = []
        self._map: tuple[str, int] | None = None  # run and configuration epoch
        self._rows: deque[int] = deque(maxlen=ROWS_KEPT)  # of the newest windows, also of cleared ones
        self.closed: deque[Window] = deque(maxlen=kept)
        self.lags = Lags()

    def add(self, batch: Batch, desired: Mapping[VirtualNode, str]) -> bool:
        """Adds a batch. Returns whether it ends a window."""
        seen = (batch.run_id, batch.configuration_epoch)
        if seen != self._map:
            if self._map is not None and self._map[0] != batch.run_id:
                self.closed.clear()
                self._former_rows = self.usual_rows
                self._rows.clear()
                self.lags = Lags()
            self._map, self._open = seen, []
            return False
        self._open.append(batch)
        if len(self._open) < self._batches:
            return False
        if self.backlog:
            self.closed.pop()  # its load is not the usual one, so no forecast may rest on it once the backlog is over
        self.closed.append(_close(self._open, desired))
        self._rows.append(self.closed[-1].rows)
        self.lags.add([one.lags for one in self._open])
        self._open = []
        return True

    @property
    def backlog(self) -> str:
        """Why the newest window may be that of a backlog, for people; empty: it is not.

        A batch had many more input rows than usual, or a source is far behind.
        """
        if not self.closed:
            return ""
        rows, usual = self.closed[-1].rows, self.usual_rows
        if rows > CATCHING_UP * usual > 0:
            return f"a batch had {rows} input rows, {usual:.0f} are usual: maybe a backlog"
        return self.lags.backlog

    @property
    def usual_rows(self) -> float:
        """Input rows of a usual batch; 0: unknown.

        This is the median of the windows before the newest one. While there are few, the missing ones count as usual
        ones of the former run or process, so a backlog soon after a restart is not taken for the usual.
        """
        known = list[float](self._rows)[:-1]
        if self._former_rows:
            known += [self._former_rows] * (ROWS_KEPT - len(self._rows))
        return median(known) if known else 0.0

    def clear(self) -> None:
        """Drops all windows: they are out of date."""
        self.closed.clear()
        self._open = []


def _close(batches: Sequence[Batch], desired: Mapping[VirtualNode, str]) -> Window:
    tasks_s: dict[VirtualNode, list[float]] = {}
    for batch in batches:
        for node, work in batch.work.items():
            tasks_s.setdefault(node, []).append(work.task_s)
    load_s = {node: fmean(times) for node, times in tasks_s.items()}
    peak_s = {node: max(times) for node, times in tasks_s.items()}
    error_s = {node: sqrt(variance(times) / len(times)) for node, times in tasks_s.items() if len(times) > 1}
    rows, batch_s = max(batch.rows for batch in batches), max(batch.batch_s for batch in batches)
    return Window(load_s, peak_s, dict(desired), rows, batch_s, batches[-1].trigger_s, error_s)


def worker_loads(
    load_s: Mapping[VirtualNode, float], desired: Mapping[VirtualNode, str], workers: Collection[str]
) -> dict[str, float]:
    """Seconds of tasks a batch, on each of `workers` and on other desired ones."""
    loads = dict.fromkeys(workers, 0.0)
    for node, seconds in load_s.items():
        if node in desired:
            loads[desired[node]] = loads.get(desired[node], 0.0) + seconds
    return loads


def imbalance(loads: Mapping[str, float]) -> float:
    """The load of the busiest worker over the mean; 1.0 without any load."""
    total = sum(loads.values())
    return max(loads.values()) * len(loads) / total if total > 0 else 1.0


def usual_load(windows: Sequence[Window]) -> dict[VirtualNode, float]:
    """The load of each virtual node of the newest window: the median of the windows."""
    loads = [window.load_s for window in windows]
    return {node: median([load[node] for load in loads if node in load]) for node in loads[-1]}


class NodeLoad(NamedTuple):
    """The task time of a virtual node in a batch, in seconds, and its part of the query's."""

    seconds: float
    share: float


def node_loads(windows: Sequence[Window], newest: int) -> dict[VirtualNode, NodeLoad]:
    """The load of each virtual node of the newest window in the `newest` windows."""
    loads = usual_load(list(windows)[-newest:])
    total = sum(loads.values())
    return {node: NodeLoad(load, load / total if total > 0 else 0.0) for node, load in loads.items()}


def forecast(
    loads: Sequence[Mapping[VirtualNode, float]],
    newest: int = 0,
    errors: Sequence[Mapping[VirtualNode, float]] = (),
) -> dict[VirtualNode, float]:
    """The expected load of each virtual node of the newest window, from its load in each window.

    This is the median of the `newest` windows (0: of all), and a line rising through all of them continues for half of
    their number. After a step of the load, older windows show the past. `errors`: the standard errors of the loads in
    each window. A rise within them is chance.
    """
    return {
        node: _expected(
            [load[node] for load in loads if node in load], newest, [one[node] for one in errors if node in one]
        )
        for node in loads[-1]
    }


def _expected(values: Sequence[float], newest: int, errors: Sequence[float]) -> float:
    usual = median(values[-newest:])
    count = len(values)
    if count < TREND_WINDOWS or not _rises(values, errors):
        return usual
    middle = (count - 1) / 2
    slope = sum((x - middle) * value for x, value in enumerate(values)) / sum((x - middle) ** 2 for x in range(count))
    return min(usual + slope * count, TREND_MAX * usual)


def _rises(values: Sequence[float], errors: Sequence[float]) -> bool:
    """Whether values rise from each to the next, and the newest ones by more than their errors explain."""
    if any(after <= before for before, after in pairwise(values)):
        return False
    error = sqrt(2 * fmean(one * one for one in errors)) if errors else 0.0  # of a difference
    return values[-1] - values[-TREND_NEWEST] > TREND_ERRORS * error
