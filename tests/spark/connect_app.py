"""Run by test_modify_refusals.py in a process of its own: a client of a Spark Connect server runs a query there."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType


def main() -> None:
    address, checkpoint, output = sys.argv[1:]
    spark = SparkSession.builder.remote(address).getOrCreate()

    def score(value: int) -> int:
        return value + 1

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    scored = rows.select("value", F.udf(score, LongType())("value").alias("y"))
    writer = scored.writeStream.format("parquet").option("path", output).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="250 milliseconds").start()
    print("started", flush=True)
    sys.stdin.readline()
    query.stop()
    print("stopped", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
