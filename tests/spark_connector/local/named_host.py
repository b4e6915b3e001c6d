"""Run by test_named_host.py in a process of its own: how Rhino names the place of each store."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark_connector.local.daemons import join
from tests.spark_connector.local.one_query import PARTITIONS, ROWS, SMALL, counted, wait_for

CONF = SMALL | {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def main() -> None:
    folder = Path(sys.argv[1])
    conf = join(folder / "state").conf() | CONF
    spark = SparkSession.builder.config(map=conf).getOrCreate()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    writer = counted(rows).writeStream.outputMode("update").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(processingTime="1 hour").foreachBatch(lambda rows, _: rows.collect()).start()
    wait_for(lambda: query.lastProgress, "the first batch")
    assert spark._jvm is not None
    state = spark._jvm.org.apache.spark.sql.execution.streaming.state
    coordinator = state.StateStoreCoordinatorRef.forExecutor(spark.sparkContext._jsc.sc().env())
    run_id = spark._jvm.java.util.UUID.fromString(str(query.runId))

    def located() -> list[str]:
        """By Rhino's map alone: Spark forgets where the stores were, and no batch tells it again."""
        coordinator.deactivateInstances(run_id)
        ids = [state.StateStoreId(f"file:{folder}/checkpoint/state", 0, p, "default") for p in range(PARTITIONS)]
        found = [coordinator.getLocation(state.StateStoreProviderId(its, run_id)) for its in ids]
        return [location.get() for location in found if location.isDefined()]

    wait_for(lambda: len(located()) == PARTITIONS, "the map")
    said = located()
    query.stop()
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
