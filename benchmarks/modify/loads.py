"""The changed queries: the paper's stateful map query, NBQ5 and NBQ8. Endless and replayable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.overhead.loads import ids
from examples.demo import query
from query_evolution import Modifications, state_function
from query_evolution.modify.ledger import View
from workloads.nexmark import events
from workloads.nexmark.queries.windows import nbq5
from workloads.nexmark.query import Streams

INSTANCES = 8
OUTPUT = "value bigint, instance bigint, ordinal bigint"
FUNCTION = "count"
BIDS, PERSONS = "bids", "persons"
Change = Callable[[Modifications, int], View]


@dataclass(frozen=True, slots=True)
class Load:
    """`change` asks for the change of a number. All versions do the same work, so batches can be compared."""

    mode: str
    stream: Callable[[SparkSession, int], DataFrame]
    change: Change


def counting(first: int) -> Callable[..., Any]:
    """A version of the map function of BTW 2019, 6.3.1: it appends the count of the rows received by its instance.

    `first` tells the versions apart. It is defined here and not in the module, so it travels with its code.
    """

    def count(key: tuple[int], batches: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        rows = pd.concat(list(batches)).sort_values("value")
        received = state.get[0] if state.exists else first
        state.update((received + len(rows),))
        yield rows.assign(ordinal=range(received + 1, received + len(rows) + 1))[["value", "instance", "ordinal"]]

    return count


def _map_query(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    keyed = ids(spark, rows_per_batch).selectExpr("n as value", f"n % {INSTANCES} as instance").groupBy("instance")
    return keyed.applyInPandasWithState(counting(0), OUTPUT, "received bigint", "append", "NoTimeout")


def _nbq5(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    asked = nbq5()

    def bids() -> DataFrame:
        return events.bids(ids(spark, rows_per_batch), asked.generator).observe(BIDS, F.count(F.lit(1)).alias("rows"))

    return asked.stream(Streams(bids, bids, bids, asked.generator))


def _nbq8(spark: SparkSession, rows_per_batch: int) -> DataFrame:
    """A quarter persons, the rest auctions."""
    persons, auctions = query.made(ids(spark, rows_per_batch // 4), ids(spark, rows_per_batch // 4 * 3))
    return query.nbq8(persons.observe(PERSONS, F.count(F.lit(1)).alias("rows")), auctions)


def _another_function(changes: Modifications, number: int) -> View:
    return changes.replace_function(FUNCTION, state_function(counting(number), OUTPUT))


def _another_filter(point: str, column: str) -> Change:
    """All rows pass it."""
    return lambda changes, number: changes.set_filter(point, f"{column} >= {-number - 1}")


LOADS = {
    "mapquery": Load("append", _map_query, _another_function),
    "nbq5": Load("append", _nbq5, _another_filter(BIDS, "auction")),
    "nbq8": Load("append", _nbq8, _another_filter(PERSONS, "id")),
}
