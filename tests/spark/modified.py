"""The queries of the tests of modifications, and what a batch computation makes that switches at the same batches."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from query_evolution.modify.ledger import View
from tests.spark.queries import ROWS_PER_BATCH, StatefulQuery, consumed, source

POINT = "scored"
TOTALS = StructType([StructField("k", LongType()), StructField("n", LongType()), StructField("s", LongType())])
STATE = StructType([StructField("n", LongType()), StructField("s", LongType())])
SCORES = {"plus": "value + 1", "triple": "value * 3", "minus": "-value"}  # what the functions of `functions()` compute


def functions() -> dict[str, Any]:
    """Versions of the function `score` of the query."""

    def plus(value: int) -> int:
        return value + 1

    def triple(value: int) -> int:
        return value * 3

    def minus(value: int) -> int:
        return -value

    def fails(value: int) -> int:
        raise ValueError(f"no score for {value}")

    made = {function.__name__: F.udf(function, LongType()) for function in (plus, triple, minus, fails)}
    return made | {"whole": F.udf(lambda value: 1, IntegerType()), "two": F.udf(lambda value, by: 1, LongType())}


def needs_a_module(decorator: Any = F.pandas_udf, kind: str = "pd.Series") -> Any:
    """A UDF whose module is known to this process only: pickled by its name."""
    module = types.ModuleType("rhino_nowhere")
    exec(f"import pandas as pd\ndef series(values: {kind}) -> {kind}: return values", module.__dict__)
    sys.modules[module.__name__] = module
    return decorator(module.series, LongType())


def scored(spark: SparkSession) -> DataFrame:
    def score(value: int) -> int:
        return value + 1

    rows = source(spark).select((F.col("value") % 89).alias("k"), F.udf(score, LongType())("value").alias("y"))
    marked = rows.observe(POINT, F.count(F.lit(1)).alias("rows"))
    return marked.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))


SCORED = StatefulQuery("scored", "update", scored, lambda spark, batches: scored_batch(spark, batches, [], {}), key="k")


def scored_batch(spark: SparkSession, batches: int, views: Sequence[View], used: dict[int, str]) -> DataFrame:
    """`used`: by number of a modification, the function that it brought."""
    batch = F.floor(F.col("value") / ROWS_PER_BATCH)
    rows = consumed(spark, batches).withColumn("batch", batch).withColumn("y", F.col("value") + 1)
    for view in views:
        if not _counted(view):
            continue
        last = batches if view.last_batch is None else view.last_batch
        within = f"batch between {view.first_batch} and {last}"
        if view.record.number in used:
            rows = rows.withColumn("y", F.expr(f"if({within}, {SCORES[used[view.record.number]]}, y)"))
    for view in views:
        if view.record.change.removes or not _counted(view):
            continue
        last = batches if view.last_batch is None else view.last_batch
        within = f"batch between {view.first_batch} and {last}"
        if view.record.change.kind == "filter":
            rows = rows.where(f"not ({within}) or ({view.record.change.condition})")
        if view.record.change.kind == "columns":
            rows = rows.withColumn("y", F.expr(f"if({within}, {view.record.change.columns['y']}, y)"))
    return (
        rows.select((F.col("value") % 89).alias("k"), "y")
        .groupBy("k")
        .agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))
    )


def _counted(view: View) -> bool:
    """For any batch."""
    return view.first_batch is not None and (view.last_batch is None or view.last_batch >= view.first_batch)


def adding(factor: int) -> Any:
    """A function for `applyInPandasWithState`: counts the rows of a key, and sums `factor` for each."""

    def total(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        count, summed = state.get if state.exists else (0, 0)
        rows = sum(len(frame) for frame in frames)
        count, summed = count + rows, summed + rows * factor
        state.update((count, summed))
        yield pd.DataFrame({"k": [key[0]], "n": [count], "s": [summed]})

    return total


def totals(spark: SparkSession) -> DataFrame:
    keyed = source(spark).select((F.col("value") % 89).alias("k"))
    return keyed.groupBy("k").applyInPandasWithState(adding(1), TOTALS, STATE, "update", "NoTimeout")


TOTALLED = StatefulQuery("totals", "update", totals, lambda spark, batches: totals_batch(spark, batches, 0), key="k")


def totals_batch(spark: SparkSession, batches: int, switched: int) -> DataFrame:
    """From batch `switched` on, each row counts 1000."""
    each = F.when(F.floor(F.col("value") / ROWS_PER_BATCH) < switched, 1).otherwise(1000)
    rows = consumed(spark, batches).select((F.col("value") % 89).alias("k"), each.alias("w"))
    return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("w").alias("s"))


def processor(factor: int, schema: str = "n bigint, s bigint") -> Any:
    """The same for `transformWithStateInPandas`."""

    class Totals(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", schema)

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            count, summed = self.total.get() if self.total.exists() else (0, 0)
            length = sum(len(frame) for frame in rows)
            count, summed = count + length, summed + length * factor
            self.total.update((count, summed))
            yield pd.DataFrame({"k": [key[0]], "n": [count], "s": [summed]})

        def close(self) -> None:
            pass

    return Totals()


def processed(spark: SparkSession) -> DataFrame:
    keyed = source(spark).select((F.col("value") % 89).alias("k"))
    return keyed.groupBy("k").transformWithStateInPandas(processor(1), TOTALS, "update", "None")


PROCESSED = StatefulQuery(
    "processed", "update", processed, lambda spark, batches: totals_batch(spark, batches, 0), key="k"
)


def vectorised(factor: int) -> dict[str, Any]:
    """A pandas UDF and an Arrow UDF that multiply."""

    def series(values: pd.Series) -> pd.Series:
        return values * factor

    def array(values: pa.Array) -> pa.Array:
        return pa.compute.multiply(values, factor)

    return {"series": F.pandas_udf(series, LongType()), "array": F.arrow_udf(array, LongType())}


def weighed(spark: SparkSession) -> DataFrame:
    made = vectorised(1)
    key = (F.col("value") % 89).alias("k")
    rows = source(spark).select(key, made["series"]("value").alias("a"), made["array"]("value").alias("b"))
    return rows.groupBy("k").agg(F.sum("a").alias("a"), F.sum("b").alias("b"))


def weighed_batch(spark: SparkSession, batches: int, switched: dict[str, int]) -> DataFrame:
    """From the batch in `switched` on, the function of that name multiplies by 7."""
    batch = F.floor(F.col("value") / ROWS_PER_BATCH)
    values = {name: F.when(batch < at, F.col("value")).otherwise(F.col("value") * 7) for name, at in switched.items()}
    key = (F.col("value") % 89).alias("k")
    rows = consumed(spark, batches).select(key, values["series"].alias("a"), values["array"].alias("b"))
    return rows.groupBy("k").agg(F.sum("a").alias("a"), F.sum("b").alias("b"))


WEIGHED = StatefulQuery(
    "weighed",
    "update",
    weighed,
    lambda spark, batches: weighed_batch(spark, batches, {"series": 0, "array": 0}),
    key="k",
)


def numbered(spark: SparkSession) -> DataFrame:
    """Has functions that decide the key, are not deterministic, and are above the aggregation, as is a point."""

    def keyed(value: int) -> int:
        return value % 89

    def score(value: int) -> int:
        return value + 1

    def noise(value: int) -> int:
        return 1

    def shown(total: int) -> int:
        return total

    key, y = F.udf(keyed, LongType())("value"), F.udf(score, LongType())("value")
    one = F.udf(noise, LongType()).asNondeterministic()("value")
    rows = source(spark).select(key.alias("k"), y.alias("y"), F.lit(1).alias("one"), one.alias("noisy"))
    marked = rows.drop("noisy").observe(POINT, F.count(F.lit(1)).alias("rows"))
    counted = marked.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))
    observed = counted.observe("counted", F.max("n").alias("most"))
    return observed.select("k", "n", F.udf(shown, LongType())("s").alias("s"))


NUMBERED = StatefulQuery(
    "numbered", "update", numbered, lambda spark, batches: numbered_batch(spark, batches, batches), key="k"
)


def numbered_batch(spark: SparkSession, batches: int, switched: int) -> DataFrame:
    """From batch `switched` on, `score` triples."""
    value = F.col("value")
    y = F.when(F.floor(value / ROWS_PER_BATCH) < switched, value + 1).otherwise(value * 3)
    rows = consumed(spark, batches).select((value % 89).alias("k"), y.alias("y"))
    return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))
