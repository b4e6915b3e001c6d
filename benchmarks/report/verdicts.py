"""Compares the figures of paired runs of two trees."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from benchmarks.report import shapes

FEWEST_PAIRS = 5  # noise alone passes the rule in 3.5 % of figures with five pairs, 1.6 % with six, 18 % with three
Figures = Mapping[str, float]


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference beyond noise"
    UNDECIDED = "too few pairs"


@dataclass(frozen=True, slots=True)
class Compared:
    """`ratios`: this tree's figure over the other's, one of each pair."""

    figure: str
    this_median: float
    other_median: float
    ratios: Sequence[float]
    higher_is_better: bool

    @property
    def ratio(self) -> float:
        """The median, of logarithms: swapping the trees gives the reciprocal."""
        return math.exp(statistics.median(math.log(ratio) for ratio in self.ratios))

    @property
    def verdict(self) -> Verdict:
        """A difference is real if all pairs point the same way, by more than half of the range between them."""
        logs = [math.log(ratio) for ratio in self.ratios]
        if len(logs) < FEWEST_PAIRS:
            return Verdict.UNDECIDED
        one_way = min(logs) > 0 or max(logs) < 0
        beyond = abs(statistics.median(logs)) > (max(logs) - min(logs)) / 2
        if not (one_way and beyond):
            return Verdict.SAME
        return Verdict.BETTER if (logs[0] > 0) == self.higher_is_better else Verdict.WORSE


@dataclass(frozen=True, slots=True)
class Comparison:
    """`skipped`: incomparable figures, with the reason."""

    compared: Sequence[Compared]
    skipped: Mapping[str, str]


def figures_of(report: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """Figures of the columns `names` in the report's summaries.

    A figure's name has the table, the texts and sizes that identify its row, and the column.
    """
    found: dict[str, float] = {}
    for table in shapes.summaries(report):
        for row in table.rows:
            kind = [f"{key} {value}" if isinstance(value, int) else str(value) for key, value in _identity(row)]
            for name in names:
                value = row.get(name)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    found[", ".join([table.title, *kind, name])] = float(value)
    return found


def _identity(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    sizes = ("state_bytes", "hops", "virtual_nodes", "events")
    return [(key, value) for key, value in row.items() if isinstance(value, str) or key in sizes]


def compare(pairs: Sequence[tuple[Figures, Figures]], higher: Sequence[str]) -> Comparison:
    """`pairs`: this tree's figures and the other's. `higher`: columns with higher-is-better figures."""
    compared: list[Compared] = []
    skipped: dict[str, str] = {}
    for name in sorted({name for pair in pairs for side in pair for name in side}):
        both = [(this.get(name), other.get(name)) for this, other in pairs]
        values = [(this, other) for this, other in both if this is not None and other is not None]
        if len(values) < len(pairs):
            lacking = "this tree" if any(this is None for this, _ in both) else "the other tree"
            skipped[name] = f"not reported by {lacking} in every run"
        elif any(this <= 0 or other <= 0 for this, other in values):
            skipped[name] = "zero or negative, so it has no ratio"
        else:
            this_median, other_median = (statistics.median(side) for side in zip(*values, strict=True))
            ratios = [this / other for this, other in values]
            compared.append(Compared(name, this_median, other_median, ratios, name.rpartition(", ")[2] in higher))
    return Comparison(compared, skipped)
