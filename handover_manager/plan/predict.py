"""Predictions for a handover, from measurements only. Nothing unmeasured is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from handover_manager.plan.measurements import Measurements
from handover_manager.plan.move import Move
from handover_manager.plan.strategy import Strategy


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """Predictions for one step in seconds. None: nothing was measured for it.

    `prepare_s`: until the target has everything. `pause_s`: by how much the slowest batch under the marker takes longer
    than usual. `total_s`: from the step's turn to its confirmation.
    """

    prepare_s: float | None = None
    pause_s: float | None = None
    total_s: float | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predictions for a whole handover, in seconds.

    `pause_s` is that of its worst step. `basis` names the measurements, for people.
    """

    steps: tuple[StepPrediction, ...] = ()
    pause_s: float | None = None
    total_s: float | None = None
    basis: str = "nothing measured yet"


UNKNOWN = Prediction()


def predict(
    steps: Sequence[Sequence[Move]], strategy: Strategy, measurements: Measurements, rate: float | None, wait_s: float
) -> Prediction:
    """Predicts each step and the total from former measurements.

    `rate` is in bytes per second, from copies made before a marker. `wait_s` are the seconds until the requested start.
    A step is prepared while the step before settles, so only the part of the copying that takes longer counts.
    """
    batch_s, confirm_s, pause_s = measurements.batch_s, measurements.confirm_s, measurements.pause_s
    if confirm_s is None and batch_s is not None:
        confirm_s = 1.5 * batch_s  # half of the batch that runs at the marker, and the next batch
    gap_s = max(strategy.gap_s, strategy.gap_batches * (batch_s or 0.0))
    gap_known = batch_s is not None or not strategy.gap_batches
    found: list[StepPrediction] = []
    total: float | None = wait_s
    for number, moves in enumerate(steps):
        prepare_s = _copying(sum(m.bytes_to_move for m in moves), rate)
        hidden_s = (confirm_s or 0.0) + gap_s if number else 0.0
        turn_s: float | None = None
        if prepare_s is not None and confirm_s is not None and gap_known:
            turn_s = max(prepare_s - hidden_s, 0.0) + (gap_s if number else 0.0) + confirm_s
        total = None if total is None or turn_s is None else total + turn_s
        found.append(StepPrediction(prepare_s, pause_s, turn_s))
    return Prediction(tuple(found), pause_s, total, _basis(measurements, rate))


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
