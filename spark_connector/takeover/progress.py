"""What adopt and release tell while they work, and at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[int, int, int], None]  # stores done, stores in all, bytes so far


@dataclass(frozen=True, slots=True)
class Outcome:
    """`provider`: the class that the checkpoint names afterwards. `backup`: "" when nothing was rewritten."""

    job: str
    batch_id: int
    stores: int
    files: int
    bytes: int
    provider: str
    worker_id: str
    backup: str


def silent(done: int, total: int, size_bytes: int) -> None:
    """For callers that want no progress."""
