"""`python -m examples.guide.supervise`: other code takes a running query over, between two batches."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from examples.guide.common import endless, run_batches, small_cluster
from query_evolution import Supervised, supervise


def begin(rows: DataFrame, checkpoint: Path) -> Supervised:
    """Both applications end with this line. Here they are in one process."""
    return supervise(rows.writeStream.queryName("counts").format("noop"), str(checkpoint), output_mode="update")


def running(one: Supervised) -> StreamingQuery:
    while one.query is None:
        one.wait(0.1)  # raises its failure
    return one.query


def main() -> None:
    with small_cluster() as (_, spark, folder):
        rows = endless(spark)
        former = begin(rows.groupBy("k").count(), folder / "checkpoint")
        print("the former code: batch", run_batches(running(former), 2))
        new = begin(rows.where("value % 2 = 0").groupBy("k").count(), folder / "checkpoint")
        print("the former code:", former.wait(120))
        print("the new code: batch", run_batches(running(new), 2))
        new.stop()
        print("the new code:", new.wait(60))


if __name__ == "__main__":
    main()
