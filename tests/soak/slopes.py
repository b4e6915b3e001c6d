"""Whether a figure still rises: medians of the second, third and last quarter of its samples are compared.

The first quarter is the warm-up. Medians do not see a peak, and a figure that goes up and down within a quarter is
level. What rises steadily is higher in each quarter than in the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from statistics import median

SAMPLES_MIN = 12


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A figure is level up to `factor` times its median in the second quarter, and `slack` more."""

    pattern: str
    factor: float
    slack: float

    def allows(self, before: float, after: float) -> bool:
        return after <= self.factor * before + self.slack


TOLERANCES = (  # the first whose pattern fits
    Tolerance("* anonymous MB", 1.1, 8.0),
    Tolerance("* threads", 1.2, 8),
    Tolerance("* descriptors", 1.15, 10),
    Tolerance("* tasks", 1.3, 40),
    Tolerance("* objects *", 1.5, 400),
    Tolerance("* size of *", 1.5, 60),
    Tolerance("* MB", 1.3, 6.0),
    Tolerance("* files", 1.5, 60),
)


@dataclass(frozen=True, slots=True)
class Growth:
    figure: str
    quarters: tuple[float, float, float]

    def __str__(self) -> str:
        second, third, last = self.quarters
        return f"{self.figure}: {second:.5g} in the second quarter, {third:.5g} in the third, {last:.5g} in the last"


def growing(samples: Sequence[Mapping[str, float]]) -> Iterator[Growth]:
    """Figures that have not come to rest; one that a sample does not have was 0 then. Takes SAMPLES_MIN or more."""
    assert len(samples) >= SAMPLES_MIN, f"{len(samples)} samples say nothing"
    quarter = len(samples) // 4
    ends = [len(samples) - quarter * left for left in (2, 1, 0)]
    for figure in sorted({figure for sample in samples for figure in sample}):
        second, third, last = (median(s.get(figure, 0.0) for s in samples[end - quarter : end]) for end in ends)
        if not _tolerance(figure).allows(second, last) and second < third < last:
            yield Growth(figure, (second, third, last))


def _tolerance(figure: str) -> Tolerance:
    return next(tolerance for tolerance in TOLERANCES if fnmatch(figure, tolerance.pattern))
