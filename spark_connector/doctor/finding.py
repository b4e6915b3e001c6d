"""The values that an examination finds."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """Orders from the worst on."""

    BLOCKS = "blocks"  # Spark does not open the newest batch, or would go on from wrong content
    WEAKENS = "weakens"  # Spark opens it by a detour, or not in each version or with each setting
    OLDER = "older"  # only a way back to an older batch is lost
    NOTE = "note"  # no damage


@dataclass(frozen=True, slots=True)
class Finding:
    """`file`: below the checkpoint; empty if none is to blame. Operator and partition of -1: the query as a whole.

    `batch` of -1: of no one batch.
    """

    severity: Severity
    file: str
    text: str
    way_out: str
    batch: int = -1
    operator: int = -1
    partition: int = -1
    store: str = ""

    @property
    def where(self) -> str:
        """Operator, partition and store, as far as they are known: "0/3", "0/3/left-keyToNumValues"."""
        parts = [str(number) for number in (self.operator, self.partition) if number >= 0]
        return "/".join([*parts, self.store] if self.store and self.store != "default" else parts)
