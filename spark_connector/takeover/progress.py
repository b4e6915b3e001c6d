"""Progress and result of adopt and release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[int, int, int], None]  # finished stores, all stores, bytes so far


@dataclass(frozen=True, slots=True)
class Outcome:
    """`provider`: the class that the checkpoint names afterwards. `backup`: empty if nothing was rewritten."""

    job: str
    batch_id: int
    stores: int
    files: int
    bytes: int
    provider: str
    worker_id: str
    backup: str


def silent(done: int, total: int, size_bytes: int) -> None:
    """For callers that need no progress."""
