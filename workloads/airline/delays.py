"""The four operators: extract delays; sum them by airplane and year, with every event; time in the air; a sample."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from workloads.nexmark import draws
from workloads.nexmark.javarandom import Bools, Ints, Randoms
from workloads.trial.job import Job

COLUMNS = ("operator", "airplane", "flights", "minutes", "detail")
SCHEMA = "row bigint, tailnum string, arr_delay bigint, air_time bigint, ts timestamp"
SAMPLE = 20  # one of so many flights is sampled
YEAR_MIN = 365 * 24 * 60


def job(flights: pa.Table, slices: Path, batches: int) -> Job:
    """Builds the job. `slices` contains the files of `flights`: one per batch, and one with the far-off flight."""

    def stream(spark: SparkSession) -> DataFrame:
        return reduce(
            DataFrame.unionByName, [_delays(spark, slices), _in_the_air(spark, slices), _sample(spark, slices)]
        )

    def answer(db: duckdb.DuckDBPyConnection) -> str:
        rows = flights.column("row").to_numpy()
        sampled = drawn(np.asarray(rows, dtype=np.int64))
        db.register("flights", flights.append_column("sampled", pa.array(sampled)))
        return _ANSWER

    # After the far-off flight Spark runs one batch without data, which advances the watermark.
    return Job("airline", COLUMNS, stream, batches + 2, len(flights), answer)


def drawn(rows: Ints) -> Bools:
    """Returns which rows are in the sample."""
    hits: Bools = Randoms(rows).next_int(SAMPLE) == 0
    return hits


def far_row(flights: pa.Table) -> int:
    """Returns a row number for the far-off flight that is in the sample.

    Spark evaluates conditions before event time, so this flight must satisfy the conditions of every operator.
    """
    after = np.arange(len(flights), len(flights) + 100 * SAMPLE, dtype=np.int64)
    return int(after[drawn(after)][0])


def _read(spark: SparkSession, slices: Path) -> DataFrame:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(slices))
    # Windows count from 1970. The year 2013 begins eleven days after a multiple of 365 days.
    return rows.withWatermark("ts", "1 hour").withColumn("year", F.window("ts", "365 days", startTime="11 days"))


def _delays(spark: SparkSession, slices: Path) -> DataFrame:
    """Operators 1 and 2. As in the paper, the state keeps every event with a delay."""
    delayed = _read(spark, slices).where("arr_delay > 0")
    sums = delayed.groupBy("year", "tailnum").agg(
        F.count("*").alias("flights"), F.sum("arr_delay").alias("minutes"), F.collect_list("row").alias("rows")
    )
    return _rows("delays", sums, "md5(array_join(array_sort(rows), ','))")


def _in_the_air(spark: SparkSession, slices: Path) -> DataFrame:
    """Operator 3: the share of the year that an airplane spends in the air, in hundredths of a percent."""
    flown = _read(spark, slices).where("air_time is not null").groupBy("year", "tailnum")
    sums = flown.agg(F.count("*").alias("flights"), F.sum("air_time").alias("minutes"))
    return _rows("air", sums, f"cast(minutes * 10000 div {YEAR_MIN} as string)")


def _sample(spark: SparkSession, slices: Path) -> DataFrame:
    """Operator 4: the share of delayed flights in a sample, in hundredths of a percent.

    The paper samples by time. Here the sample depends on the row number only, so that it is the same at every start.
    """
    drawn = _read(spark, slices).where("arr_delay is not null")
    drawn = draws.next_int(drawn.selectExpr("*", f"{draws.seed('row')} as seed"), "draw", str(SAMPLE)).where("draw = 0")
    late = "if(arr_delay > 0, arr_delay, 0)"
    sums = drawn.groupBy("year").agg(
        F.count("*").alias("flights"),
        F.sum(F.expr(late)).alias("minutes"),
        F.sum(F.expr("if(arr_delay > 0, 1, 0)")).alias("late"),
    )
    return _rows("sample", sums.withColumn("tailnum", F.lit("all")), "cast(late * 10000 div flights as string)")


def _rows(operator: str, sums: DataFrame, detail: str) -> DataFrame:
    return sums.selectExpr(
        f"'{operator}' as operator", "tailnum as airplane", "flights", "minutes", f"{detail} as detail"
    )


_ANSWER = f"""
    select 'delays', tailnum, count(*), sum(arr_delay)::bigint, md5(string_agg(row::text, ',' order by row))
    from flights where arr_delay > 0 group by tailnum
    union all
    select 'air', tailnum, count(*), sum(air_time)::bigint, (sum(air_time)::bigint * 10000 // {YEAR_MIN})::text
    from flights where air_time is not null group by tailnum
    union all
    select 'sample', 'all', count(*), sum(greatest(arr_delay, 0))::bigint,
           (count(*) filter (arr_delay > 0) * 10000 // count(*))::text
    from flights where sampled and arr_delay is not null
"""
