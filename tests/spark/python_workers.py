"""Run by test_python_workers.py: a query with a Python function, in a local session of two slots."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from rhino import Modifications, local_session
from tests.spark.notebook.sessions import SMALL

TIMEOUT_S = 120


def scoring(factor: int) -> Any:
    def score(value: int) -> int:
        return value * factor

    return F.udf(score, "bigint")


def start(spark: SparkSession, checkpoint: Path) -> StreamingQuery:
    """Its batches have one task at a time, so they need one Python worker."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1)
    scored = source.load().select((F.col("value") % 3).alias("key"), scoring(1)("value").alias("score"))
    sums = scored.groupBy("key").sum("score").writeStream.outputMode("update").format("noop")
    return sums.option("checkpointLocation", str(checkpoint)).start()


def until(condition: Callable[[], object], query: StreamingQuery) -> bool:
    """Whether it becomes true."""
    end = time.monotonic() + TIMEOUT_S
    while not condition() and time.monotonic() < end:
        assert query.isActive, query.exception()
        time.sleep(0.05)
    return bool(condition())


def sends_at_once(spark: SparkSession, workers: Any) -> bool:
    jvm: Any = spark._jvm
    channels, option = workers.channels(), jvm.java.net.StandardSocketOptions.TCP_NODELAY
    return all(channels.apply(number).getOption(option) for number in range(channels.size()))


def main() -> None:
    folder = Path(sys.argv[1])
    spark = local_session(SMALL, data_dir=folder / "state")
    jvm: Any = spark._jvm
    workers = jvm.org.apache.spark.sql.execution.streaming.state.seam.PythonWorkers
    query, said = start(spark, folder / "checkpoint"), dict[str, Any]()
    said["one more than batches need"] = until(lambda: workers.count() == 2, query)
    said["at once"] = until(lambda: sends_at_once(spark, workers), query)
    changes = Modifications(folder / "checkpoint")
    said["changes"] = [
        changes.wait(changes.replace_function("score", scoring(factor)).record.number).state for factor in (2, 3)
    ]
    said["workers"] = workers.count()
    query.stop()
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
