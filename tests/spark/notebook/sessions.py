"""Run by test_existing_sessions.py: sessions in one process that has another session, or had one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rhino import local_session, rhino_conf
from rhino.testing.spark_daemons import lean_jvm
from rhino_core.errors import RhinoError

SMALL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": " ".join(lean_jvm()),
    "spark.log.level": "WARN",
}


def refusal(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except RhinoError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def rows_after_three_batches(spark: SparkSession, checkpoint: Path) -> list[int]:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = rows.selectExpr("value % 3 as key").groupBy("key").count()
    seen: list[int] = []
    writer = counts.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    query = writer.foreachBatch(lambda batch, _: seen.append(sum(row["count"] for row in batch.collect()))).start()
    while len(seen) < 3 and query.isActive:
        time.sleep(0.05)
    query.stop()
    assert query.exception() is None, query.exception()
    return seen[:3]


def main() -> None:
    folder = Path(sys.argv[1])
    state = folder / "state"
    said: dict[str, Any] = {}
    plain = SparkSession.builder.config(map=SMALL).getOrCreate()
    provider = plain.conf.get("spark.sql.streaming.stateStore.providerClass")
    said["local_session"] = refusal(lambda: local_session(data_dir=state))
    said["rhino_conf"] = refusal(lambda: rhino_conf("127.0.0.1:7461"))
    said["unchanged"] = plain.conf.get("spark.sql.streaming.stateStore.providerClass") == provider
    said["nothing started"] = not state.exists()
    plain.stop()

    spark = local_session(SMALL, data_dir=state)
    said["rows"] = rows_after_three_batches(spark, folder / "checkpoint")
    said["same again"] = local_session(data_dir=state) is spark
    said["other directory"] = refusal(lambda: local_session(data_dir=folder / "other"))
    said["other not started"] = not (folder / "other").exists()
    spark.stop()
    other = local_session(SMALL, data_dir=folder / "other")
    said["other rows"] = rows_after_three_batches(other, folder / "other checkpoint")
    other.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
