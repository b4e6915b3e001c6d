"""An application of a user. It runs with the source tree and the jar that PYTHONPATH names, of any revision.

    python -P app.py MANAGER SOCKET FOLDER

FOLDER has the query checkpoint. Each batch appends its id, and the least and the greatest count of a key, to
`batches` in it. The application ends when there is a file `stop` in it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

try:
    from rhino import rhino_conf
except ImportError:  # protocol 1
    from spark_connector import rhino_conf  # type: ignore[attr-defined,no-redef]

KEYS = 10
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    # A single process sends its first heartbeats before it is ready for them, and can be dropped on a slow machine.
    "spark.executor.heartbeatInterval": "10s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "100s",
    "spark.network.timeout": "120s",
}


def main() -> None:
    manager, socket, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    settings = {**rhino_conf(manager, socket=socket), **SETTINGS}
    spark = SparkSession.builder.master("local[2,8]").config(map=settings).getOrCreate()  # 8: attempts of a task

    def write(batch: Any, batch_id: int) -> None:
        least, greatest = batch.agg(F.min("count"), F.max("count")).first()
        with (folder / "batches").open("a") as file:
            file.write(f"{batch_id} {least} {greatest}\n")

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", KEYS).load()
    counts = rows.groupBy((F.col("value") % KEYS).alias("key")).count()
    sink = counts.writeStream.outputMode("update").foreachBatch(write).queryName("counts")
    query = sink.option("checkpointLocation", str(folder / "checkpoint")).start()
    while not (folder / "stop").exists():
        if query.awaitTermination(0.2):
            raise RuntimeError("the query has ended by itself")
    (folder / "stop").unlink()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
