"""A streaming job with an independent answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

CLOSING_BATCHES = 3  # far-off events, then the batch with their watermark, then one to be sure


class Sink(Enum):
    """`FILES`: rows are final, in append mode. `BATCHES`: the same, in a folder per batch that a repeated batch
    replaces. `CHANGES`: changed rows, in such folders; the newest row of each key counts.
    """

    FILES = "files"
    BATCHES = "batches"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class Job:
    """`stream`: the query, the same at every start. `goal`: where its position must be until all rows are out; the
    position is the number of committed batches, or what `position` makes of (checkpoint, newest committed batch).

    `answer`: loads what the job reads into the database and returns SQL that gives `columns`.
    """

    name: str
    columns: tuple[str, ...]
    stream: Callable[[SparkSession], DataFrame]
    goal: int
    events: int
    answer: Callable[[duckdb.DuckDBPyConnection], str]
    position: Callable[[Path, int], int] | None = None
    sink: Sink = Sink.FILES
    key: tuple[str, ...] = ()  # of CHANGES
    stateful: bool = True
    partitions: int = 4  # of its state: virtual nodes of each task group
