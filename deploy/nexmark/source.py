"""Event ids as a replayable stream: so many in each batch, then far-off events that close every window."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from pyspark.sql import DataFrame, SparkSession

from deploy.nexmark.settings import BASE_MS, Generator
from rhino.settings import require

_FAR_US = 10**15  # 31 years
_APART_EVENTS = 5000 * 50  # further than any draw of an id reaches: the far-off events do not join with each other


def stream(spark: SparkSession, sizes: Sequence[int], far: Sequence[int] = ()) -> DataFrame:
    """Column `n`: event ids from 0, `sizes[i]` of them in batch i; then a batch of the ids `far`; then none."""
    counts = [*sizes, len(far)]
    width = max(counts)
    starts = [0, *accumulate(sizes)][: len(sizes)]
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", width).option("numPartitions", 2)
    rows = source.option("startTimestamp", BASE_MS).load()
    rows = rows.selectExpr(f"cast(value div {width} as int) as batch", f"cast(value % {width} as int) as place")
    rows = rows.where(f"place < get({_array(counts)}, batch)")
    if not far:
        return rows.selectExpr(f"get({_array(starts)}, batch) + place as n")
    far_id = f"get({_array(far)}, place)"
    return rows.selectExpr(f"if(batch = {len(sizes)}, {far_id}, get({_array([*starts, 0])}, batch) + place) as n")


def batch(spark: SparkSession, events: int) -> DataFrame:
    """The same ids as a batch, without far-off ones."""
    return spark.range(events).withColumnRenamed("id", "n")


def equal_sizes(events: int, batches: int) -> tuple[int, ...]:
    """`batches` batches as equal as they can be."""
    return tuple(events * (i + 1) // batches - events * i // batches for i in range(batches))


def varying_sizes(events: int, batches: int) -> tuple[int, ...]:
    """Rhino 5.5: the rate climbs in steps of a sixteenth of its greatest from an eighth of it, and falls likewise."""
    climb = range(2, 17)
    weights = [(*climb, *reversed(climb[1:-1]))[i % 28] for i in range(batches)]
    ends = [events * total // sum(weights) for total in accumulate(weights)]
    return tuple(end - start for start, end in zip([0, *ends], ends, strict=False))


def far_events(generator: Generator) -> tuple[int, int, int]:
    """Ids of a person, an auction and a bid decades after all others, to drive watermarks past every window."""
    require(generator.generators == 1, "generators", generator.generators, "1 in a stream")
    block = _FAR_US // generator.delay_us // 50 * 50
    return block, block + _APART_EVENTS + 1, block + 2 * _APART_EVENTS + 4


def _array(numbers: Sequence[int]) -> str:
    return f"array({', '.join(f'{n}L' for n in numbers)})"
