"""A client of Spark Connect, with no word of Rhino in it. Arguments: server, input, checkpoint, file for the result."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(server: str, rows: str, checkpoint: str, result: str) -> None:
    spark = SparkSession.builder.remote(server).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(rows)
    output = lines.groupBy("value").count().writeStream.queryName("counts").outputMode("complete").format("memory")
    query = output.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    counts = {row["value"]: row["count"] for row in spark.table("counts").collect()}
    metrics = [json.loads(p.json)["stateOperators"][0]["customMetrics"] for p in query.recentProgress]
    Path(result).write_text(json.dumps({"counts": counts, "rhino": ["rhinoCommitMs" in m for m in metrics]}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
