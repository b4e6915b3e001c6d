"""Load histories of replica groups, and the fit of a worker as the place of a copy.

A worker becomes overloaded because the load of its virtual nodes rises. A copy is worth most on a worker without a rise
at the same time (Madsen & Zhou, CIKM 2015, section 5).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from rhino_core.ids import GroupId, ReplicaGroup
from rhino_core.planning.correlation import Candidate, centred

BATCHES = 4  # of a window
KEPT = 30  # windows
LEAST = 8  # windows before anything is said
SLACK = 0.5  # a worker may have this part more than its share of the load that the copies of a query stand for


class Fit(NamedTuple):
    """How well a worker suits a copy. Less is better, so tuples compare.

    `beyond`: the copies there stand for more than the worker's share of load, and the slack. `level`: the correlation
    of the loads of group and worker, in steps of its standard error.
    """

    beyond: bool
    level: int


@dataclass(slots=True)
class _Query:
    """`closed`: windows, the oldest first: seconds of the task of each group in a usual batch of the window."""

    open: dict[GroupId, list[float]] = field(default_factory=dict)
    batches: int = 0
    closed: deque[dict[GroupId, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    windows: int = 0  # since the last round


class LoadHistories:
    """The newest windows of each query. Not journalled: after a restart copies are placed by bytes for a while.

    The median of a window's batches counts, because the first batch of a run or after a move also loads state.
    """

    def __init__(self) -> None:
        self._queries: dict[str, _Query] = {}

    def add(self, job: str, task_s: Mapping[GroupId, float]) -> bool:
        """Adds a logged batch. `task_s`: seconds of the task of each group; unreported groups count as 0.

        Returns whether this batch ends a round, with only new windows since the round before.
        """
        if not task_s:
            return False
        query = self._queries.setdefault(job, _Query())
        query.batches += 1
        for group, seconds in task_s.items():
            query.open.setdefault(group, []).append(seconds)
        if query.batches < BATCHES:
            return False
        query.closed.append({group: median(found) for group, found in query.open.items()})
        query.open, query.batches = {}, 0
        query.windows = (query.windows + 1) % KEPT
        return not query.windows

    def forget_job(self, job: str) -> None:
        self._queries.pop(job, None)

    def of(self, group: GroupId) -> list[float]:
        """Seconds in each window of the query, the oldest first. Empty if there are too few windows."""
        query = self._queries.get(group.job)
        if query is None or len(query.closed) < LEAST:
            return []
        return [window.get(group, 0.0) for window in query.closed]


class Fits:
    """How workers suit the copies of one query's groups, as the groups are now."""

    def __init__(self, histories: LoadHistories, groups: Iterable[ReplicaGroup], workers: int) -> None:
        """`groups`: all of the query. `workers`: how many may hold copies."""
        self._histories = histories
        self._copied: dict[str, float] = {}  # by worker: seconds that its copies stand for
        loads: dict[str, list[float]] = {}
        copied = 0.0
        for group in groups:
            history = histories.of(group.group)
            if not history:
                continue
            owner = group.owner.worker_id
            loads[owner] = list(map(float.__add__, loads.get(owner, [0.0] * len(history)), history))
            mean = math.fsum(history) / len(history)
            for member in group.members[1:]:
                copied += mean
                self._copied[member.worker.worker_id] = self._copied.get(member.worker.worker_id, 0.0) + mean
        self._workers = {worker: centred(load) for worker, load in loads.items()}
        self._limit = (1 + SLACK) * copied / max(workers, 1)

    def of(self, group: GroupId) -> dict[str, Fit]:
        """By worker, if different from `usual`. Empty if nothing is known."""
        history = self._histories.of(group)
        if not history:
            return {}
        mine, error = centred(history), standard_error(len(history))
        return {
            worker: Fit(
                self._copied.get(worker, 0.0) > self._limit,
                round(self._correlation(mine, worker) / error) if worker in self._workers else 0,
            )
            for worker in self._workers.keys() | self._copied.keys()
        }

    def candidate(self, group: GroupId, worker: str) -> Candidate:
        """The figures of a worker. Its correlation is 0 if nothing is known of its load."""
        correlation = self._correlation(centred(self._histories.of(group)), worker)
        return Candidate(worker, correlation, self._copied.get(worker, 0.0) > self._limit)

    def error(self, group: GroupId) -> float:
        """The standard error of the group's correlations. Something must be known of it."""
        return standard_error(len(self._histories.of(group)))

    def _correlation(self, mine: Sequence[float], worker: str) -> float:
        theirs = self._workers.get(worker)
        return math.fsum(map(float.__mul__, mine, theirs)) if theirs is not None else 0.0

    def add(self, group: GroupId, workers: Iterable[str]) -> None:
        """Counts further copies of the group."""
        history = self._histories.of(group)
        for worker in workers if history else ():
            self._copied[worker] = self._copied.get(worker, 0.0) + math.fsum(history) / len(history)


def standard_error(windows: int) -> float:
    """Standard error of a correlation over so many windows if its true value is 0."""
    return 1 / math.sqrt(windows)


USUAL = Fit(False, 0)  # of a worker of which nothing is known
