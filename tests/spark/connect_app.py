"""Run by test_connect.py in a process of its own: a client of a Spark Connect server runs a query there.

It adds the Python files that it is given to its session, starts the query, and says `started`. Each line of its input
is another file, after which it says `added`. At the end of the input it stops the query.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from tests.spark.queries import source


def main() -> None:
    address, checkpoint, output, trigger, *files = sys.argv[1:]
    spark = SparkSession.builder.remote(address).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")  # of a session of its own
    for file in files:
        spark.addArtifacts(file, pyfile=True)

    def score(value: int) -> int:
        return value + 1

    rows = source(spark).select((F.col("value") % 89).alias("k"), "value", F.udf(score, LongType())("value").alias("y"))
    marked = rows.observe("scored", F.count(F.lit(1)).alias("rows"))
    writer = marked.dropDuplicates(["value"]).writeStream.format("parquet").option("path", output)
    query = writer.option("checkpointLocation", checkpoint).trigger(processingTime=trigger).start()
    print("started", flush=True)
    for line in sys.stdin:
        spark.addArtifacts(line.strip(), pyfile=True)
        print("added", flush=True)
    query.stop()
    print("stopped", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
