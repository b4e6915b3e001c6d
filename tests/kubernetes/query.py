"""A query with a known answer: batch n counts the rows 0 to 1000 (n + 1) - 1 by their value modulo 50.

`python query.py FOLDER`: the checkpoint is FOLDER/checkpoint, each batch appends a line to FOLDER/batches.jsonl, and
the file FOLDER/stop ends it.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark.sql import DataFrame, SparkSession

ROWS, KEYS = 1000, 50


def main(folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()

    def note(frame: DataFrame, batch: int) -> None:
        counts = {row["k"]: row["count"] for row in frame.collect()}
        line = {"batch": batch, "keys": len(counts), "least": min(counts.values()), "most": max(counts.values())}
        with open(f"{folder}/batches.jsonl", "a") as file:
            file.write(json.dumps({**line, "time": time.time()}) + "\n")

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    counts = rows.selectExpr(f"value % {KEYS} as k").groupBy("k").count()
    stream = counts.writeStream.outputMode("complete").queryName("counts").foreachBatch(note)
    query = (
        stream.option("checkpointLocation", f"file://{folder}/checkpoint").trigger(processingTime="1 second").start()
    )
    while query.isActive and not os.path.exists(f"{folder}/stop"):
        time.sleep(0.2)
    error = query.exception()
    query.stop()
    spark.stop()
    sys.exit(str(error) if error else 0)


if __name__ == "__main__":
    main(sys.argv[1])
