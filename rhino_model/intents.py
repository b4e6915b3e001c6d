"""Requests of handovers. An intent chooses virtual nodes and their targets (Rhino 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rhino_core.errors import InvalidRequestError
from rhino_core.planning.goals import Weight as Weight
from rhino_model.strategy import ALL_AT_ONCE, Strategy


@dataclass(frozen=True, slots=True)
class Drain:
    """Moves everything off one worker: of the request's job, or of all running jobs."""

    worker: str

    def __str__(self) -> str:
        return f"drain {self.worker}"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Spreads a job's virtual nodes evenly over the workers, with few moves (Rhino 3.5.1)."""

    by: Weight = Weight.BYTES

    def __str__(self) -> str:
        return f"rebalance by {self.by.value}"


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """Moves a fair share of a job's virtual nodes to these workers (Rhino 3.5.2)."""

    workers: tuple[str, ...]
    by: Weight = Weight.BYTES

    def __str__(self) -> str:
        return f"scale out onto {', '.join(self.workers)}"


@dataclass(frozen=True, slots=True)
class ScaleIn:
    """Moves a job's virtual nodes off these workers."""

    workers: tuple[str, ...]

    def __str__(self) -> str:
        return f"scale in off {', '.join(self.workers)}"


@dataclass(frozen=True, slots=True)
class Adapt:
    """The intent of adaptation: balance of task time within a band. Users cannot ask for it.

    `band`: the part of the mean by which a worker may exceed its share.
    """

    band: float
    by: ClassVar[Weight] = Weight.TIME

    def __str__(self) -> str:
        return "adaptation by time"


Intent = Drain | Rebalance | ScaleOut | ScaleIn | Adapt


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a user: an `intent`, or `virtual_nodes` ("<task group>/<partition>") and their `target`.

    `job` is an id or a unique name. If it is empty, the request covers all running jobs, if the intent allows it.
    """

    job: str
    virtual_nodes: tuple[str, ...] = ()
    target: str = ""
    deadline_s: float = 0.0  # seconds for each step; 0: that of the manager
    intent: Intent | None = None
    strategy: Strategy = ALL_AT_ONCE


def needs_work(intent: Intent) -> bool:
    """Whether a plan for it needs rows or task times, as drivers report them."""
    return isinstance(intent, Rebalance | ScaleOut | Adapt) and intent.by in (Weight.ROWS, Weight.TIME)


def weight_of(name: str) -> Weight:
    """The weight with this name; an empty name means bytes. Raises InvalidRequestError that lists the names."""
    try:
        return Weight(name or Weight.BYTES.value)
    except ValueError:
        raise InvalidRequestError(f"by {name!r}: use {', '.join(weight.value for weight in Weight)}") from None


def check_workers(workers: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the workers. Raises InvalidRequestError if there are none, or one is named twice."""
    if not workers:
        raise InvalidRequestError("no worker given: name at least one worker id")
    if len(set(workers)) < len(workers):
        raise InvalidRequestError(f"worker given twice: {', '.join(workers)}")
    return workers
