"""Strategies: how a user may spread moves over steps and time (Megaphone 3.3, 4.4)."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from rhino_core.errors import InvalidRequestError

MAX_TRANSFERS = 10_000


class Kind(enum.Enum):
    """How moves are grouped into steps.

    ALL_AT_ONCE: one step. BATCHED: k virtual nodes per step. FLUID: one per step. MATCHED: in one step each worker
    sends at most one virtual node and receives at most one, with the fewest steps possible.
    """

    ALL_AT_ONCE = "all_at_once"
    BATCHED = "batched"
    FLUID = "fluid"
    MATCHED = "matched"


@dataclass(frozen=True, slots=True)
class Strategy:
    """How moves are spread over steps and time.

    `gap_s` (seconds) and `gap_batches` (logged batches) are the minimum distance between the confirmation of a step and
    the next marker. `start_at_ms` is wall clock; 0: now. `max_transfers` limits how many virtual nodes are copied at
    the same time; 0: no limit.
    """

    kind: Kind = Kind.ALL_AT_ONCE
    batch_size: int = 1
    gap_s: float = 0.0
    gap_batches: int = 0
    start_at_ms: int = 0
    max_transfers: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InvalidRequestError(f"batch size {self.batch_size}: must be 1 or more virtual nodes a step")
        if not math.isfinite(self.gap_s) or self.gap_s < 0 or self.gap_batches < 0:
            raise InvalidRequestError(
                f"gap of {self.gap_s} s, {self.gap_batches} batches: must be 0 (no gap) or positive"
            )
        if not 0 <= self.max_transfers <= MAX_TRANSFERS:
            raise InvalidRequestError(f"max transfers {self.max_transfers}: must be 0 (no limit) to {MAX_TRANSFERS}")
        if self.start_at_ms < 0:
            raise InvalidRequestError(f"start at {self.start_at_ms} ms: must be a time after 1970, or 0 for now")


ALL_AT_ONCE = Strategy()


def kind_of(name: str) -> Kind:
    """The kind with this name; an empty name means all at once. Raises InvalidRequestError that lists the names."""
    try:
        return Kind(name or Kind.ALL_AT_ONCE.value)
    except ValueError:
        raise InvalidRequestError(f"strategy {name!r}: use one of {', '.join(kind.value for kind in Kind)}") from None
