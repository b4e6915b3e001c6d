"""What a NEXMark query is here: a streaming DataFrame, and the same answer in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from deploy.nexmark import events, source
from deploy.nexmark.settings import Generator

BEAM = events.BEAM
LATENESS = "1 second"  # events come in order; two of the same millisecond may come in two batches


@dataclass(frozen=True, slots=True)
class Streams:
    """NEXMark's three streams; every call is a source of its own, and all advance in step."""

    person: Callable[[], DataFrame]
    auction: Callable[[], DataFrame]
    bid: Callable[[], DataFrame]
    generator: Generator


def live(spark: SparkSession, generator: Generator, sizes: Sequence[int], *, closed: bool) -> Streams:
    """Streams of `sizes[i]` events in batch i; `closed`: followed by far-off events that close all windows."""
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
    """`answer`: SQL over tables person, auction and bid with event time `ts_ms`, giving `columns`.

    `generator`: event time that suits the query's windows, and the fields that it reads. `windowed`: rows come out when
    a watermark has passed, so a run ends with far-off events.
    """

    name: str
    about: str
    columns: tuple[str, ...]
    stream: Callable[[Streams], DataFrame]
    answer: str
    generator: Generator = BEAM
    windowed: bool = True
    stateful: bool = True
