"""Predictions for a handover, from measurements only. Nothing unmeasured is predicted."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from handover_manager.plan.measurements import Measurements
from rhino_model.handovers import UNKNOWN, Plan, PlannedStep, Prediction


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
