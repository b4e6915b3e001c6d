"""The driver's answer to a dry run of old against new, as people get it. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from rhino_core.foreign import reading


@dataclass(frozen=True, slots=True)
class Version:
    """One of both functions. `failed`: rows with an error. `error`: the first one.

    `row_us`: microseconds of a row, without the first call. None: only one row was there.
    """

    failed: int
    error: str
    row_us: float | None


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row with different values from both functions, as Python writes them. Long texts are cut."""

    given: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Old against new on rows of one batch. `skipped`: why nothing was compared, or ""."""

    batch: int
    skipped: str = ""
    rows: int = 0
    different: int = 0
    old: Version = Version(0, "", None)
    new: Version = Version(0, "", None)
    examples: tuple[RowDifference, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises IntegrityError."""
        with reading("the comparison of a dry run"):
            fields = json.loads(text)
            if "skipped" in fields:
                return cls(int(fields["batch"]), str(fields["skipped"]))
            found = json.loads(fields["found"])
            return cls(
                int(fields["batch"]),
                rows=int(found["rows"]),
                different=int(found["different"]),
                old=_version(found["old"]),
                new=_version(found["new"]),
                examples=tuple(
                    RowDifference(str(one["given"]), str(one["old"]), str(one["new"])) for one in found["examples"]
                ),
            )


def _version(fields: dict[str, Any]) -> Version:
    row_us = fields["us"]
    return Version(int(fields["failed"]), str(fields["error"]), None if row_us is None else float(row_us))
