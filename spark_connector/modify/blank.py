"""Blanks: functions that give no values, of the kind of a new function at a point.

A driver prepares the first batch of a new function with a blank in its place, so nothing of the user's is called. A
blank is pickled by value, because executors need not have Rhino. So this imports nothing of Rhino.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def of_row(*_arguments: Any, **_named: Any) -> None:
    """For one row."""


def of_series(*arguments: Any, **named: Any) -> Any:
    """For columns of pandas."""
    import pandas as pd

    return pd.Series([None] * _rows(arguments, named), dtype=object)


def of_arrays(*arguments: Any, **named: Any) -> Any:
    """For columns of Arrow."""
    import pyarrow as pa

    return pa.nulls(_rows(arguments, named))


def of_each_series(batches: Iterator[Any]) -> Iterator[Any]:
    """For batches of pandas."""
    return (of_series(*_columns(batch)) for batch in batches)


def of_each_array(batches: Iterator[Any]) -> Iterator[Any]:
    """For batches of Arrow."""
    return (of_arrays(*_columns(batch)) for batch in batches)


def _columns(batch: Any) -> tuple[Any, ...]:
    return batch if isinstance(batch, tuple) else (batch,)


def _rows(arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
    return len((*arguments, *named.values())[0])
