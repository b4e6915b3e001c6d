"""Parts of the tests of adaptation that other tests use as well."""

from __future__ import annotations


def skewed(partition: int, at: float) -> float:
    """The partitions of the first of four workers have four times the load of the others."""
    return 4.0 if partition % 4 == 0 else 1.0
