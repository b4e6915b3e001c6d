"""The newest batches of each query, and how far its copies were behind, since `rhino ui` began. Bounded.

Times are wall clock in milliseconds: when this process was told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rhino_model.loads import BatchLoad

KEPT = 120  # of each kind, for one query
QUERIES_MAX = 1000  # the one without a sample for longest is dropped


class Batch(NamedTuple):
    """A logged batch: its duration, trigger interval (0: none), input rows, and the most that a source is behind."""

    at_ms: int
    batch_id: int
    batch_s: float
    trigger_s: float
    rows: int
    behind: float | None  # None: no source reports it


@dataclass(slots=True)
class Course:
    """One query over time. `copies_behind`: versions, of the copy furthest behind. `restarts`: other runs."""

    batches: deque[Batch] = field(default_factory=lambda: deque(maxlen=KEPT))
    copies_behind: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    restarts: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=KEPT))
    run_id: str = ""
    imbalance: float | None = None  # of the newest batch


class Samples:
    """The courses of queries, by job; the one with the newest sample is the last."""

    def __init__(self) -> None:
        self.courses: dict[str, Course] = {}

    def logged(self, load: BatchLoad, at_ms: int) -> None:
        """A batch was logged. Another run than before is a restart."""
        course = self._course(load.job)
        if course.run_id not in ("", load.run_id):
            course.restarts.append((at_ms, load.run_id))
        course.run_id, course.imbalance = load.run_id, load.imbalance
        behind = max((lag.behind for lag in load.lags), default=None)
        course.batches.append(Batch(at_ms, load.batch_id, load.batch_s, load.trigger_s, load.input_rows, behind))

    def looked(self, copies_behind: Mapping[str, int], at_ms: int) -> None:
        """One look at the manager."""
        for job, behind in copies_behind.items():
            self._course(job).copies_behind.append((at_ms, behind))

    def _course(self, job: str) -> Course:
        course = self.courses.pop(job) if job in self.courses else Course()
        self.courses[job] = course
        if len(self.courses) > QUERIES_MAX:
            del self.courses[next(iter(self.courses))]
        return course
