"""`python -m examples.guide.modify`: replaces a Python function of a running query."""

from __future__ import annotations

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from examples.guide.common import endless, run_batches, small_cluster, start
from query_evolution import Modifications


def score(value: int) -> int:
    return value + 1


def tripled(value: int) -> int:
    return value * 3


def main() -> None:
    with small_cluster() as (_, spark, folder):
        scored = endless(spark).select("k", F.udf(score, LongType())("value").alias("y"))
        query = start(scored.groupBy("k").agg(F.sum("y")), "counts", folder / "checkpoint")
        run_batches(query, 2)
        changes = Modifications(folder / "checkpoint")
        view = changes.wait(changes.replace_function("score", F.udf(tripled, LongType())).record.number)
        print(f"score: {view.state}, from batch {view.first_batch} on {view.reason}")
        print("the query was not restarted: batch", run_batches(query, 2))


if __name__ == "__main__":
    main()
