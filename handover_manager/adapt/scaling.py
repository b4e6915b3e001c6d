"""How many workers a query needs to keep its batches within the trigger interval (as DS2: in one step, by a model).

A batch takes T = a + b * x seconds, where x is the task time of the busiest worker. `a` and `b` are fitted to the
newest windows. With w workers, x is the larger of an even share and the heaviest virtual node, because its keys cannot
be split. A backlog of B usual batches, to be gone in n trigger intervals, makes each batch 1 + B / n times as large.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from handover_manager.adapt.lag import CAUGHT_UP
from handover_manager.adapt.windows import Windows, forecast, worker_loads
from handover_manager.view import ClusterView
from rhino_core.ids import VirtualNode
from rhino_model.loads import SourceLag

UTILIZATION = 0.7  # the part of the trigger interval that a batch may take: a later backlog has to be caught up
WORKERS_MAX = 10_000
HARDLY = 0.1  # more workers are of no use if they shorten a batch by less than this part, and not by enough
POINTS = 32  # windows that the model is fitted to
BACKLOG_MAX = 2  # a backlog wants at most so many times the workers that are wanted without one
SPREAD_MIN = 1.2  # the loads have to differ by this factor for a line through them to mean anything


@dataclass(frozen=True, slots=True)
class Wanted:
    """`workers` is the need of the newest windows, None if it is not known. `why` is for people.

    `batch_s`: the duration of a batch as the model has it for so many workers. `trigger_s`: the trigger interval, 0 if
    there is none. Both in seconds. `lags`: the lags of the sources.
    """

    workers: int | None
    why: str
    batch_s: float | None = None
    trigger_s: float = 0.0
    lags: tuple[SourceLag, ...] = ()


UNKNOWN = Wanted(None, "too few batches so far")


@dataclass(frozen=True, slots=True)
class Line:
    """T = fixed_s + per_s * x."""

    fixed_s: float
    per_s: float

    def batch_s(self, busiest_s: float) -> float:
        return self.fixed_s + self.per_s * busiest_s


def fit(points: Sequence[tuple[float, float]]) -> Line | None:
    """The line of least squares through (task time of the busiest worker, duration of the batch), in seconds.

    If the loads hardly differ, nothing is fixed: the line goes through the origin. None without any load.
    """
    loads = [x for x, _ in points]
    if not points or max(loads) <= 0:
        return None
    through_origin = Line(0.0, sum(x * y for x, y in points) / sum(x * x for x in loads))
    if min(loads) <= 0 or max(loads) / min(loads) < SPREAD_MIN:
        return through_origin
    mean_x, mean_y = sum(loads) / len(points), sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x in loads)
    fixed_s = mean_y - slope * mean_x
    return Line(fixed_s, slope) if slope > 0 and fixed_s >= 0 else through_origin


def workers_wanted(
    load_s: Mapping[VirtualNode, float], points: Sequence[tuple[float, float]], trigger_s: float, workers_max: int
) -> Wanted:
    """The fewest workers for batches of at most UTILIZATION of the trigger interval.

    If no number suffices, the fewest for batches hardly longer than with any number.

    `load_s`: the expected task time of each virtual node. `workers_max`: more are of no use, as there are no more
    virtual nodes or available workers.
    """
    if trigger_s <= 0:
        return Wanted(None, "the query has no trigger interval: each batch begins when the one before has ended")
    line = fit(points)
    if line is None:
        return Wanted(None, "the driver has not reported the duration of batches yet", trigger_s=trigger_s)
    total_s, heaviest_s, allowed_s = sum(load_s.values()), max(load_s.values()), UTILIZATION * trigger_s
    most = min(len(load_s), workers_max)
    for count in range(1, most + 1):
        batch_s = line.batch_s(max(total_s / count, heaviest_s))
        if batch_s <= allowed_s:
            why = f"a batch would take {batch_s:.2f} s of {trigger_s:g} s"
            return Wanted(count, why, batch_s, trigger_s)
    best_s = line.batch_s(max(total_s / most, heaviest_s))
    useful = next(n for n in range(1, most + 1) if line.batch_s(max(total_s / n, heaviest_s)) <= (1 + HARDLY) * best_s)
    batch_s = line.batch_s(max(total_s / useful, heaviest_s))
    why = f"no number of workers brings a batch to {allowed_s:.2f} s: more than {useful} hardly help"
    return Wanted(useful, why, batch_s, trigger_s)


def with_backlog(
    wanted: Wanted, load_s: Mapping[VirtualNode, float], line: Line | None, behind: float, catch_up_s: float
) -> Wanted:
    """More workers if the wanted ones do not work a backlog of `behind` usual batches off within `catch_up_s`.

    Batches may take the whole trigger interval meanwhile.
    """
    if wanted.workers is None or line is None or behind <= CAUGHT_UP:
        return wanted
    larger = 1 + behind * wanted.trigger_s / catch_up_s
    total_s, heaviest_s = larger * sum(load_s.values()), larger * max(load_s.values())
    most = min(BACKLOG_MAX * wanted.workers, max(len(load_s), wanted.workers))
    counts = range(wanted.workers, most + 1)
    enough = (count for count in counts if line.batch_s(max(total_s / count, heaviest_s)) <= wanted.trigger_s)
    workers = next(enough, None)
    told = f"{behind:.1f} usual batches behind"
    if workers is None:
        why = f"{told}: no number up to {most} works that off in {catch_up_s / 60:g} min"
        useful = next(n for n in counts if total_s / n <= max(total_s / most, heaviest_s) * (1 + HARDLY))
        return dataclasses.replace(wanted, workers=useful, why=why)
    if workers == wanted.workers:
        return dataclasses.replace(wanted, why=f"{wanted.why}; {told}, which is worked off in {catch_up_s / 60:g} min")
    why = f"{told}: {workers} work that off in {catch_up_s / 60:g} min, later {wanted.workers} suffice"
    return dataclasses.replace(wanted, workers=workers, why=why)


class Lazily:
    """The wanted number. It rises at once and falls slowly. Times are monotonic, in seconds.

    `scale_in_s`: fewer are wanted only when fewer have sufficed for so long.
    """

    def __init__(self, scale_in_s: float) -> None:
        self._scale_in_s = scale_in_s
        self._newest: deque[tuple[float, int]] = deque()  # falling numbers: each the largest since its time

    def add(self, workers: int, now: float) -> None:
        while self._newest and self._newest[-1][1] <= workers:
            self._newest.pop()
        self._newest.append((now, workers))

    def workers(self, now: float) -> int | None:
        """The largest number of the last `scale_in_s`. None if there is none."""
        while len(self._newest) > 1 and self._newest[0][0] <= now - self._scale_in_s:
            self._newest.popleft()
        return self._newest[0][1] if self._newest else None


class Scaling:
    """The wanted number of workers of each query. Not journalled: the next windows bring it again.

    `scale_in_s`: as of `Lazily`. `catch_up_s`: the time to work a backlog off.
    """

    def __init__(self, scale_in_s: float, catch_up_s: float) -> None:
        self._scale_in_s, self._catch_up_s = scale_in_s, catch_up_s
        self._loads_s: dict[str, Mapping[VirtualNode, float]] = {}  # usual ones
        self._points: dict[str, deque[tuple[float, float]]] = {}
        self._lazily: dict[str, Lazily] = {}
        self._newest: dict[str, Wanted] = {}

    def observe(self, job: str, windows: Windows, view: ClusterView, now: float) -> None:
        """Takes in the newest window of a query.

        The load of a backlog is not the usual one. It is no reason for more workers, unless the sources say how much
        there is left to read.
        """
        newest, lags = windows.closed[-1] if windows.closed else None, windows.lags
        if newest is None or not newest.peak_s or (windows.backlog and not lags.batches):
            return
        workers = [name for name, seen in view.workers.items() if seen.eligible]
        points = self._points.setdefault(job, deque(maxlen=POINTS))
        if newest.batch_s > 0:
            points.append((max(worker_loads(newest.peak_s, newest.desired, workers).values()), newest.batch_s))
        if not windows.backlog or job not in self._loads_s:
            self._loads_s[job] = forecast([window.peak_s for window in windows.closed])
        load_s = self._loads_s[job]
        wanted = workers_wanted(load_s, points, newest.trigger_s, WORKERS_MAX)
        wanted = with_backlog(wanted, load_s, fit(points), lags.batches, self._catch_up_s)
        self._newest[job] = wanted = dataclasses.replace(wanted, lags=lags.newest)
        if wanted.workers is not None:
            self._lazily.setdefault(job, Lazily(self._scale_in_s)).add(wanted.workers, now)

    def wanted(self, job: str, now: float) -> Wanted:
        """The wanted number now. It falls slowly."""
        newest = self._newest.get(job, UNKNOWN)
        lazily = self._lazily.get(job)
        workers = lazily.workers(now) if lazily is not None else None
        if newest.workers is None or workers is None or workers == newest.workers:
            return newest
        return dataclasses.replace(
            newest,
            workers=workers,
            why=f"{newest.workers} suffice now, {workers} were needed within the last {self._scale_in_s / 60:g} min",
        )

    def forget(self, job: str) -> None:
        for table in (self._points, self._lazily, self._newest, self._loads_s):
            table.pop(job, None)
