"""What a user may ask of a handover, beside naming virtual nodes and their target (Rhino 3.5)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rhino.errors import InvalidRequestError


class Weight(enum.Enum):
    """What "evenly" means: BYTES of state, ROWS (keys) of state, TIME of tasks, or the COUNT of virtual nodes."""

    BYTES = "bytes"
    ROWS = "rows"
    TIME = "time"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class Drain:
    """Everything off one worker, of all running jobs or of the request's."""

    worker: str

    def __str__(self) -> str:
        return f"drain {self.worker}"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A job's virtual nodes evenly over the workers, with few moves (Rhino 3.5.1)."""

    by: Weight = Weight.BYTES

    def __str__(self) -> str:
        return f"rebalance by {self.by.value}"


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """A fair share of a job's virtual nodes onto these workers (Rhino 3.5.2)."""

    workers: tuple[str, ...]
    by: Weight = Weight.BYTES

    def __str__(self) -> str:
        return f"scale out onto {', '.join(self.workers)}"


@dataclass(frozen=True, slots=True)
class ScaleIn:
    """A job's virtual nodes off these workers."""

    workers: tuple[str, ...]

    def __str__(self) -> str:
        return f"scale in off {', '.join(self.workers)}"


Intent = Drain | Rebalance | ScaleOut | ScaleIn


def weight_of(name: str) -> Weight:
    """Raises InvalidRequestError with what there is; empty: bytes."""
    try:
        return Weight(name or Weight.BYTES.value)
    except ValueError:
        raise InvalidRequestError(f"by {name!r}: use {', '.join(weight.value for weight in Weight)}") from None


def check_workers(workers: tuple[str, ...]) -> tuple[str, ...]:
    """Raises InvalidRequestError for none, or one given twice."""
    if not workers:
        raise InvalidRequestError("no worker given: name at least one worker id")
    if len(set(workers)) < len(workers):
        raise InvalidRequestError(f"worker given twice: {', '.join(workers)}")
    return workers
