"""What was measured of a job: intervals of its batches, steps of its handovers, copies made for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

KEPT = 32
PREFIX = "handover_manager/figures/"


class StepFigure(NamedTuple):
    """A confirmed step: seconds from its marker to its confirmation, and by how much its slowest batch was longer than
    usual (None: unknown)."""

    confirm_s: float
    pause_s: float | None


class CopyFigure(NamedTuple):
    """Bytes that targets received before a marker, and the seconds that took."""

    bytes: int
    seconds: float


@dataclass(slots=True)
class Figures:
    """The newest KEPT of each. `errors`: |predicted - measured| / measured of the time of former handovers."""

    intervals_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    steps: deque[StepFigure] = field(default_factory=lambda: deque(maxlen=KEPT))
    copies: deque[CopyFigure] = field(default_factory=lambda: deque(maxlen=KEPT))
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def batch_s(self) -> float | None:
        """Median interval of logged batches, None before there are two."""
        return median(self.intervals_s) if self.intervals_s else None

    @property
    def confirm_s(self) -> float | None:
        return median(step.confirm_s for step in self.steps) if self.steps else None

    @property
    def pause_s(self) -> float | None:
        pauses = [step.pause_s for step in self.steps if step.pause_s is not None]
        return median(pauses) if pauses else None


def copy_rate(all_figures: Iterable[Figures]) -> float | None:
    """Bytes a second over all copies that were measured, None before the first one."""
    copies = [copy for figures in all_figures for copy in figures.copies]
    seconds = sum(copy.seconds for copy in copies)
    return sum(copy.bytes for copy in copies) / seconds if seconds > 0 else None


def figures_key(job: str) -> str:
    return f"{PREFIX}{job}"


def figures_to_json(figures: Figures) -> dict[str, object]:
    return {
        "intervals_s": list(figures.intervals_s),
        "steps": [list(step) for step in figures.steps],
        "copies": [list(copy) for copy in figures.copies],
        "errors": list(figures.errors),
    }


def figures_of_json(value: dict[str, Any]) -> Figures:
    return Figures(
        deque(value["intervals_s"], KEPT),
        deque((StepFigure(*step) for step in value["steps"]), KEPT),
        deque((CopyFigure(*copy) for copy in value["copies"]), KEPT),
        deque(value["errors"], KEPT),
    )
