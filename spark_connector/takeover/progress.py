"""Progress and result of adopt and release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[str, int, int, int], None]  # what is done, number of stores so far, all stores, bytes so far


@dataclass(frozen=True, slots=True)
class Outcome:
    """`provider`: the class in the checkpoint afterwards. `backup`: empty if nothing was rewritten.

    `found`: the provider and format before. Of a dry run with a conversion by Spark ahead, `files` is 0 and `bytes` is
    the size of the files to convert.
    """

    job: str
    batch_id: int
    stores: int
    files: int
    bytes: int
    provider: str
    worker_id: str
    backup: str
    found: str = ""


def silent(what: str, done: int, total: int, size_bytes: int) -> None:
    """For callers that need no progress."""
