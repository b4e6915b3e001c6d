"""Run by test_bad_input.py in a process of its own: a short query under each set of settings given on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rhino import rhino_checkpoint
from tests.spark.transform import ttl_stream


def attempt(conf: dict[str, str], checkpoint: Path) -> tuple[str, dict[str, str]]:
    """Runs some batches of an aggregation; returns the error, or an empty text, and the settings of the session."""
    batches = int(conf.pop("test.batches", "2"))
    location = rhino_checkpoint(checkpoint) if conf.pop("test.rhino", "") else str(checkpoint)
    transform = conf.pop("test.transform", "")
    late: dict[str, str] = json.loads(conf.pop("test.late", "{}"))  # set in the running session
    spark, found = None, {}
    try:
        spark = SparkSession.builder.config(map=conf).getOrCreate()
        found = dict(spark.conf.getAll)
        for key, value in late.items():
            spark.conf.set(key, value)
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        grouped = rows.groupBy((F.col("value") % 3).cast("int").alias("k"))
        counted = ttl_stream(spark) if transform else grouped.count()
        done = 0

        def sink(batch: DataFrame, number: int) -> None:
            nonlocal done
            assert batch.count() == 3
            done += 1

        writer = counted.writeStream.outputMode("update").option("checkpointLocation", location)
        query = writer.foreachBatch(sink).start()
        while done < batches and query.isActive:
            query.awaitTermination(0.2)
        if query.isActive:
            query.stop()
        error = query.exception()
    except Exception as failure:  # every way of failing is an outcome here
        return f"{type(failure).__name__}: {failure}", found
    finally:
        if spark is not None:
            spark.stop()
    return "" if error is None else str(error), found


def main() -> None:
    folder = Path(sys.argv[1])
    outcomes = {}
    for name, conf in json.load(sys.stdin).items():
        checkpoint = folder / name.split(":")[0]
        error, found = attempt(conf, checkpoint)
        offsets = any(path.name.isdigit() for path in (checkpoint / "offsets").glob("*"))
        outcomes[name] = {"done": not error, "error": error, "conf": found, "offsets": offsets}
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
