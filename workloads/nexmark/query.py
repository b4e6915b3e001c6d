"""A NEXMark query: a streaming DataFrame, and the same answer in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from workloads.nexmark import events, source
from workloads.nexmark.settings import Generator

LATENESS = "1 second"  # events are in order, but two of the same millisecond may be in different batches


@dataclass(frozen=True, slots=True)
class Streams:
    """NEXMark's three streams. Every call returns a separate source; all sources advance together."""

    person: Callable[[], DataFrame]
    auction: Callable[[], DataFrame]
    bid: Callable[[], DataFrame]
    generator: Generator


def live(spark: SparkSession, generator: Generator, sizes: Sequence[int], *, closed: bool) -> Streams:
    """Streams with `sizes[i]` events in batch i. With `closed`, far-off events follow that close all windows."""
    far = source.far_events(generator) if closed else ()

    def ids() -> DataFrame:
        return source.stream(spark, sizes, far)

    return Streams(
        lambda: events.persons(ids(), generator),
        lambda: events.auctions(ids(), generator),
        lambda: events.bids(ids(), generator),
        generator,
    )


@dataclass(frozen=True, slots=True)
class Query:
    """`answer`: SQL over the tables person, auction and bid with event time `ts_ms`; it returns `columns`.

    `generator`: an event rate that suits the query's windows, and the fields that the query reads. `windowed`: rows are
    emitted when the watermark passes, so a run ends with far-off events.
    """

    name: str
    about: str
    columns: tuple[str, ...]
    stream: Callable[[Streams], DataFrame]
    answer: str
    generator: Generator = events.BEAM
    windowed: bool = True
    stateful: bool = True
