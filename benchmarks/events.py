"""Events on the timeline of a measurement's batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Wall clock in milliseconds since the epoch."""

    name: str
    started_ms: float
