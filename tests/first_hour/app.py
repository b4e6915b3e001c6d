"""An application as users have it: no word of Rhino in it. Arguments: input folder, checkpoint, file for the result."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def main(rows: str, checkpoint: str, result: str) -> None:
    spark = SparkSession.builder.appName("counts").config("spark.sql.shuffle.partitions", "3").getOrCreate()
    counts: dict[str, int] = {}

    def collect(batch: DataFrame, _: int) -> None:
        counts.update((row["value"], row["count"]) for row in batch.collect())

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(rows)
    output = lines.groupBy("value").count().writeStream.outputMode("update").foreachBatch(collect)
    query = output.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    metrics = [json.loads(p.json)["stateOperators"][0]["customMetrics"] for p in query.recentProgress]
    Path(result).write_text(json.dumps({"counts": counts, "rhino": ["rhinoCommitMs" in m for m in metrics]}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
