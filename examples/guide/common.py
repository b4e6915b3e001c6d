"""Parts of all examples of the user guide: two workers on this machine, rows, and a wait for batches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rhino.testing import LocalCluster


@contextmanager
def small_cluster() -> Iterator[tuple[LocalCluster, SparkSession, Path]]:
    """Yields a cluster, a session on it, and a folder for checkpoints. All of it goes at the end."""
    folder = tempfile.TemporaryDirectory(prefix="rhino-guide-")
    with folder as name, LocalCluster(Path(name) / "cluster", workers=2) as cluster:
        yield cluster, cluster.session("guide", {"spark.sql.shuffle.partitions": "2"}), Path(name)


def endless(spark: SparkSession) -> DataFrame:
    """A hundred rows for each batch: `value` from 0 on, and the key `k` from 0 to 9."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    return rows.selectExpr("value", "value % 10 as k")


def start(rows: DataFrame, name: str, checkpoint: Path | str) -> StreamingQuery:
    """Starts a query whose output goes nowhere."""
    writer = rows.writeStream.queryName(name).outputMode("update").format("noop")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def run_batches(query: StreamingQuery, count: int) -> int:
    """Returns the number of the last batch once `count` further ones have run. Raises the failure of the query."""
    seen = newest(query)
    while newest(query) < seen + count:
        if query.awaitTermination(0.2):
            raise RuntimeError(f"{query.name} has ended")
    return newest(query)


def newest(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
