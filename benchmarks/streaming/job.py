"""A streaming job with an independent answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import duckdb
from pyspark.sql import DataFrame, SparkSession

CLOSING_BATCHES = 3  # far-off events, then the batch with their watermark, then one to be sure


@dataclass(frozen=True, slots=True)
class Job:
    """`stream`: the query, the same at every start. `batches`: how many must be committed until all rows are out.

    `answer`: loads what the job reads into the database and returns SQL that gives `columns`. `append` jobs write each
    row once; the others write changed rows, and the newest row of each `key` counts.
    """

    name: str
    columns: tuple[str, ...]
    stream: Callable[[SparkSession], DataFrame]
    batches: int
    events: int
    answer: Callable[[duckdb.DuckDBPyConnection], str]
    append: bool = True
    key: tuple[str, ...] = ()
    stateful: bool = True
    partitions: int = 4  # of its state: virtual nodes of each task group
