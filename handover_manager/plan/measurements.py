"""Measurements of a job (batches, steps, copies), and predictions from them. Nothing unmeasured is predicted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

from rhino_core.records import Record
from rhino_model.handovers import UNKNOWN, Plan, PlannedStep, Prediction

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


def predict(plan: Plan, measurements: Measurements, rate: float | None, wait_s: float) -> Plan:
    """The plan with predictions of each step and of the total, from former measurements.

    `rate` is in bytes per second, from copies made before a marker. `wait_s` are the seconds until the requested start.
    A step is prepared while the step before settles, so only the excess of the copying counts.
    """
    strategy = plan.strategy
    batch_s, confirm_s, pause_s = measurements.batch_s, measurements.confirm_s, measurements.pause_s
    if confirm_s is None and batch_s is not None:
        confirm_s = 1.5 * batch_s  # half of the batch that runs at the marker, and the next batch
    gap_s = max(strategy.gap_s, strategy.gap_batches * (batch_s or 0.0))
    gap_known = batch_s is not None or not strategy.gap_batches
    steps: list[PlannedStep] = []
    total: float | None = wait_s
    for number, step in enumerate(plan.steps):
        prepare_s = _copying(step.bytes_to_move, rate)
        hidden_s = (confirm_s or 0.0) + gap_s if number else 0.0
        turn_s: float | None = None
        if prepare_s is not None and confirm_s is not None and gap_known:
            turn_s = max(prepare_s - hidden_s, 0.0) + (gap_s if number else 0.0) + confirm_s
        total = None if total is None or turn_s is None else total + turn_s
        steps.append(replace(step, prediction=Prediction(pause_s, turn_s, prepare_s)))
    prediction = Prediction(pause_s, total, basis=_basis(measurements, rate))
    return replace(plan, steps=tuple(steps), prediction=prediction)


def _copying(size: int, rate: float | None) -> float | None:
    if not size:
        return 0.0
    return size / rate if rate else None


def _basis(measurements: Measurements, rate: float | None) -> str:
    parts = []
    if measurements.batch_s is not None:
        parts.append(f"{len(measurements.intervals_s)} batches (median {measurements.batch_s:.2f} s apart)")
    if measurements.steps:
        parts.append(f"{len(measurements.steps)} former steps")
    if rate:
        parts.append(f"copied at {rate / 1e6:.1f} MB/s before")
    if measurements.errors:
        parts.append(f"former predictions of the time were {median(measurements.errors):.0%} off (median)")
    return ", ".join(parts) or UNKNOWN.basis
