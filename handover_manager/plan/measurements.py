"""Measurements of a job: intervals of its batches, steps of its handovers, and copies made for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from rhino_core.records import Record

KEPT = 32
MEASUREMENTS_PREFIX = "handover_manager/figures/"


class StepMeasurement(NamedTuple):
    """A confirmed step: seconds from its marker to its confirmation, and its pause.

    The pause is the excess of its slowest batch over the usual time, in seconds. None: unknown.
    """

    confirm_s: float
    pause_s: float | None


class CopyMeasurement(NamedTuple):
    """Bytes received by targets before a marker, and their time in seconds."""

    bytes: int
    seconds: float


@dataclass(slots=True)
class Measurements:
    """The newest KEPT values of each kind.

    `errors`: |predicted - measured| / measured, for the time of former handovers.
    """

    intervals_s: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    steps: deque[StepMeasurement] = field(default_factory=lambda: deque(maxlen=KEPT))
    copies: deque[CopyMeasurement] = field(default_factory=lambda: deque(maxlen=KEPT))
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
class MeasurementsRecord(Record):
    """The journal record of Measurements."""

    intervals_s: tuple[float, ...]
    steps: tuple[StepMeasurement, ...]
    copies: tuple[CopyMeasurement, ...]
    errors: tuple[float, ...]


def copy_rate(all_measurements: Iterable[Measurements]) -> float | None:
    """Bytes per second over all measured copies. None before the first one."""
    copies = [copy for measurements in all_measurements for copy in measurements.copies]
    seconds = sum(copy.seconds for copy in copies)
    return sum(copy.bytes for copy in copies) / seconds if seconds > 0 else None


def measurements_key(job: str) -> str:
    return f"{MEASUREMENTS_PREFIX}{job}"


def record_of_measurements(measurements: Measurements) -> MeasurementsRecord:
    return MeasurementsRecord(
        tuple(measurements.intervals_s),
        tuple(measurements.steps),
        tuple(measurements.copies),
        tuple(measurements.errors),
    )


def measurements_of_record(record: MeasurementsRecord) -> Measurements:
    return Measurements(
        deque(record.intervals_s, KEPT),
        deque(record.steps, KEPT),
        deque(record.copies, KEPT),
        deque(record.errors, KEPT),
    )
