"""The application of the scene: a query that counts, under `supervise`. Started twice, the second one is a standby."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from query_evolution import supervise

ROWS, KEYS, STRIDE = 20_000, 200_000, 7_919  # rows of a batch; keys; a prime, so that each batch has other keys
NAME = "survive"


def counts(rows: DataFrame) -> DataFrame:
    """How often each key has come."""
    return rows.select(F.expr(f"value * {STRIDE} % {KEYS}").alias("k")).groupBy("k").agg(F.count(F.lit(1)).alias("n"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("conf", type=Path, help="settings of the session, as JSON")
    parser.add_argument("folder", type=Path, help="folder of the checkpoint and the output")
    parser.add_argument("--standby", action="store_true")
    asked = parser.parse_args()
    spark = SparkSession.builder.config(map=json.loads(asked.conf.read_text())).getOrCreate()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()

    def write(batch: DataFrame, batch_id: int) -> None:
        """A batch that is computed again writes the same rows again."""
        batch.coalesce(1).write.mode("overwrite").parquet(f"{asked.folder}/output/{batch_id}")

    writer = counts(rows).writeStream.queryName(NAME).trigger(processingTime="1 second").foreachBatch(write)
    checkpoint = f"{asked.folder}/checkpoint"
    running = supervise(writer, checkpoint, output_mode="update", standby=asked.standby)
    while not running.rehearsed and running.wait(0.5) is None:
        pass
    print("rehearsed", flush=True)
    running.wait()


if __name__ == "__main__":
    main()
