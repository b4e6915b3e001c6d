"""Functions of the tests that insert some at a point of a running query, and what a batch computation makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, LongType

from query_evolution import Modifications
from query_evolution.modify.code import codes_of
from query_evolution.modify.folder import ModificationFolder
from query_evolution.modify.ledger import View
from query_evolution.modify.record import Change, Kind
from tests.spark.modified import POINT, _counted, needs_a_module
from tests.spark.queries import ROWS_PER_BATCH, StatefulQuery, consumed, source


def inserted_functions() -> dict[str, Any]:
    """Pickled with their code, because they are no functions of a module."""

    def weigh(value: int, key: int) -> int:
        return value * 3 + key

    def flip(value: int) -> int:
        return -value

    def seldom(value: int) -> bool:
        return value % 5 != 0

    def series(values: pd.Series, factor: pd.Series) -> pd.Series:
        return values * 2 + factor

    def sevenfold(values: pa.Array) -> pa.Array:
        return pa.compute.multiply(values, 7)

    def batches(columns: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for values in columns:
            yield values + 1000

    def arrays(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for values in columns:
            yield pa.compute.add(values, 31)

    return {
        "weigh": F.udf(weigh, LongType()),
        "flip": F.udf(flip, LongType()),
        "seldom": F.udf(seldom, BooleanType()),
        "series": F.pandas_udf(series, LongType()),
        "sevenfold": F.arrow_udf(sevenfold, LongType()),
        "batches": F.pandas_udf(batches, LongType()),
        "arrays": F.arrow_udf(arrays, LongType()),
        "whole": F.udf(lambda value: 1, IntegerType()),
    }


def bare(spark: SparkSession) -> DataFrame:
    """Has no Python function."""
    rows = source(spark).select((F.col("value") % 89).alias("k"), F.col("value").alias("y"))
    marked = rows.observe(POINT, F.count(F.lit(1)).alias("rows"))
    return marked.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))


BARE = StatefulQuery("bare", "update", bare, lambda spark, batches: inserted_batch(spark, batches, [], {}), key="k")


def inserted_batch(
    spark: SparkSession, batches: int, views: Sequence[View], meant: Mapping[int, str], first: str = "value"
) -> DataFrame:
    """The same rows, changed in the batches of each modification.

    `meant`: by its number, what its functions compute, in SQL without functions. `first`: `y` without modifications.
    """
    batch = F.floor(F.col("value") / ROWS_PER_BATCH).alias("batch")
    rows = consumed(spark, batches).select((F.col("value") % 89).alias("k"), F.expr(first).alias("y"), batch)
    for kind in ("filter", "join", "columns"):  # their order at a point
        for view in views:
            if view.record.change.kind != kind or view.record.change.removes or not _counted(view):
                continue
            last = batches if view.last_batch is None else view.last_batch
            within, text = f"batch between {view.first_batch} and {last}", meant[view.record.number]
            rows = (
                rows.where(f"not ({within}) or ({text})")
                if kind == "filter"
                else rows.withColumn("y", F.expr(f"if({within}, {text}, y)"))
            )
    return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("y").alias("s"))


Refused = tuple[str, Callable[[Modifications], View], str]


def _columns(name: str, text: str, *, column: str = "y", of: Any = None) -> Callable[[Modifications], View]:
    """`of`: the function that gets this name."""
    return lambda query: query.set_columns(
        POINT, {column: text}, functions={name: inserted_functions()[name] if of is None else of}
    )


def recorded(**other: Any) -> Callable[[Modifications], View]:
    """A record that no command of this process writes."""

    def add(query: Modifications) -> View:
        code = replace(codes_of({"flip": inserted_functions()["flip"]})["flip"], **other)
        change = Change(Kind.COLUMNS, POINT, columns={"y": "flip(y)"}, functions={"flip": code})
        folder = ModificationFolder(query._checkpoint.folder)
        return query.get(folder.add(change, "another", dry_run=False).number)

    return add


# Of the query `numbered`, which has the functions `keyed`, `score`, `noise` and `shown`.
REFUSED_FUNCTIONS: list[Refused] = [
    ("a function of another type", _columns("whole", "whole(y)"), "column y is BIGINT, and whole(y) is INT: cast it"),
    ("null where it never was", _columns("whole", "whole(y)", column="one"), "use coalesce(whole(y), ...)"),
    ("too few arguments", _columns("weigh", "weigh(y)"), "weigh is called with 1 arguments, and the function takes 2"),
    ("no call", _columns("flip", "y + 1"), "the function flip is given, and no expression calls it"),
    ("a call that is no call of a row", _columns("flip", "flip(distinct y)"), "flip is called for each row"),
    ("a call in a lambda", _columns("flip", "transform(array(y), x -> flip(x))[0]"), "LAMBDA_FUNCTION_WITH_PYTHON_UDF"),
    ("a random argument", _columns("flip", "flip(cast(y * rand() as bigint))"), "is not deterministic"),
    ("a function of a key", _columns("flip", "flip(k)", column="k"), "start a new query for that"),
    ("an unknown function", _columns("flip", "flip(flop(y))"), "`flop`"),
    (
        "the name of a function of SQL",
        _columns("upper", "upper(y)", of=inserted_functions()["flip"]),
        "upper is a function of SQL in this query already: give the new one another name",
    ),
    (
        "the name of a function of the query",
        _columns("Score", "score(y)", of=inserted_functions()["flip"]),
        "the query has a Python function Score itself: give the new one another name, or replace that one",
    ),
    (
        "a function that no executor can load",
        lambda query: query.set_columns(POINT, {"y": "lost(y)"}, functions={"lost": needs_a_module(F.udf, "int")}),
        "the executors cannot load the function lost: ModuleNotFoundError: No module named 'rhino_nowhere'",
    ),
    ("a function of another Python", recorded(python="2.7"), "PYTHON_VERSION_MISMATCH"),
    ("a function of groups", recorded(eval_type=202), "flip is of PySpark's kind 202, and SQL calls functions that"),
]
