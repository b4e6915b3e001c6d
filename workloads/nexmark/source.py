"""Event ids as a replayable stream: a given number in each batch, then far-off events that close every window."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from pyspark.sql import DataFrame, SparkSession

from rhino_core.setting import require
from workloads.nexmark.settings import BASE_MS, Generator

_FAR_US = 10**15  # 31 years
_APART_EVENTS = 5000 * 50  # more than the range of drawn ids, so that far-off events do not join with each other


def stream(spark: SparkSession, sizes: Sequence[int], far: Sequence[int] = ()) -> DataFrame:
    """Returns column `n`: event ids from 0, `sizes[i]` of them in batch i; then one batch with the ids `far`."""
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
    """Returns the same ids as a batch, without the far-off ones."""
    return spark.range(events).withColumnRenamed("id", "n")


def equal_sizes(events: int, batches: int) -> tuple[int, ...]:
    """Splits the events into `batches` batches of nearly equal size."""
    return tuple(events * (i + 1) // batches - events * i // batches for i in range(batches))


def varying_sizes(events: int, batches: int) -> tuple[int, ...]:
    """Rhino 5.5: the rate rises from an eighth of its maximum in steps of a sixteenth, and falls in the same way."""
    climb = range(2, 17)
    weights = [(*climb, *reversed(climb[1:-1]))[i % 28] for i in range(batches)]
    ends = [events * total // sum(weights) for total in accumulate(weights)]
    return tuple(end - start for start, end in zip([0, *ends], ends, strict=False))


def far_events(generator: Generator) -> tuple[int, int, int]:
    """Ids of a person, an auction and a bid decades after all others. They drive watermarks past every window."""
    require(generator.generators == 1, "generators", generator.generators, "1 in a stream")
    block = _FAR_US // generator.delay_us // 50 * 50
    return block, block + _APART_EVENTS + 1, block + 2 * _APART_EVENTS + 4


def _array(numbers: Sequence[int]) -> str:
    return f"array({', '.join(f'{n}L' for n in numbers)})"
