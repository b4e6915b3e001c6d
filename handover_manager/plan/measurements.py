"""Measurements of a job: intervals of its batches, steps of its handovers, and copies made for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from rhino_core.records import Record

KEPT = 32
FIGURES_PREFIX = "handover_manager/figures/"


class StepFigure(NamedTuple):
    """A confirmed step: seconds from its marker to its confirmation, and its pause.

    The pause is the time by which its slowest batch took longer than usual, in seconds. None: unknown.
    """

    confirm_s: float
    pause_s: float | None


class CopyFigure(NamedTuple):
    """Bytes that targets received before a marker, and how long that took in seconds."""

    bytes: int
    seconds: float


@dataclass(slots=True)
class Figures:
    """The newest KEPT values of each kind.

    `errors`: |predicted - measured| / measured, for the time of former handovers.
    """

    intervals_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    steps: deque[StepFigure] = field(default_factory=lambda: deque(maxlen=KEPT))
    copies: deque[CopyFigure] = field(default_factory=lambda: deque(maxlen=KEPT))
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def batch_s(self) -> float | None:
        """Median interval of logged batches in seconds. None before there are two batches."""
        return median(self.intervals_s) if self.intervals_s else None

    @property
    def confirm_s(self) -> float | None:
        return median(step.confirm_s for step in self.steps) if self.steps else None

    @property
    def pause_s(self) -> float | None:
        pauses = [step.pause_s for step in self.steps if step.pause_s is not None]
        return median(pauses) if pauses else None


@dataclass(frozen=True, slots=True)
class FiguresRecord(Record):
    """The journal record of Figures."""

    intervals_s: tuple[float, ...]
    steps: tuple[StepFigure, ...]
    copies: tuple[CopyFigure, ...]
    errors: tuple[float, ...]


def copy_rate(all_figures: Iterable[Figures]) -> float | None:
    """Bytes per second over all measured copies. None before the first one."""
    copies = [copy for figures in all_figures for copy in figures.copies]
    seconds = sum(copy.seconds for copy in copies)
    return sum(copy.bytes for copy in copies) / seconds if seconds > 0 else None


def figures_key(job: str) -> str:
    return f"{FIGURES_PREFIX}{job}"


def record_of_figures(figures: Figures) -> FiguresRecord:
    return FiguresRecord(tuple(figures.intervals_s), tuple(figures.steps), tuple(figures.copies), tuple(figures.errors))


def figures_of_record(record: FiguresRecord) -> Figures:
    return Figures(
        deque(record.intervals_s, KEPT),
        deque(record.steps, KEPT),
        deque(record.copies, KEPT),
        deque(record.errors, KEPT),
    )
