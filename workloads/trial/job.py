"""A streaming job with an independently computed answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

CLOSING_BATCHES = 3  # far-off events, the batch with their watermark, and one more for safety


class Sink(Enum):
    """How a job writes its output.

    `FILES`: final rows in append mode. `BATCHES`: the same, in one folder per batch, which a repeated batch replaces.
    `CHANGES`: changed rows in such folders; the newest row of each key counts.
    """

    FILES = "files"
    BATCHES = "batches"
    CHANGES = "changes"

    @property
    def output_mode(self) -> str:
        return "update" if self is Sink.CHANGES else "append"


@dataclass(frozen=True, slots=True)
class Job:
    """`stream`: builds the query, the same at every start. `goal`: the job's position when all rows are written.

    The position is the number of committed batches, or `position(checkpoint, newest committed batch)`. `answer` loads
    the job's input into the database and returns SQL that computes `columns`.
    """

    name: str
    columns: tuple[str, ...]
    stream: Callable[[SparkSession], DataFrame]
    goal: int
    events: int
    answer: Callable[[duckdb.DuckDBPyConnection], str]
    position: Callable[[Path, int], int] | None = None
    sink: Sink = Sink.FILES
    key: tuple[str, ...] = ()  # key columns, for CHANGES
    stateful: bool = True
    partitions: int = 4  # of its state: number of virtual nodes of each task group
