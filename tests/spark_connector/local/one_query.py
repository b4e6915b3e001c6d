"""Run by test_one_query.py in a process of its own: one query, through the loss of its daemons."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from rhino import HandoverClient, JobView
from rhino.testing.spark_daemons import lean_jvm
from rhino_core.errors import RhinoError
from spark_connector.local.daemons import LocalDaemons, join

ROWS = 50
PARTITIONS = 2
KEYS = 7
SMALL = {
    "spark.master": "local[2,8]",  # 8: a task may fail while the sidecar is away
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    # snapshots early and often: the executor warms itself up in the first run, which must not count as a load
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": " ".join(lean_jvm()),
    "spark.log.level": "WARN",
}


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.05)


def counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy((F.col("value") % KEYS).alias("k")).agg(F.count("*").alias("n"), F.sum("value").alias("s"))


class Run:
    """The query, restartable from its checkpoint; `newest` has the last row of each key that the sink has seen."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.newest: dict[int, tuple[int, int]] = {}
        self.batches = 0
        self.query: StreamingQuery

    def _sink(self, rows: DataFrame, batch: int) -> None:
        self.newest.update({row.k: (row.n, row.s) for row in rows.collect()})
        self.batches = batch + 1

    def start(self) -> None:
        rows = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        writer = counted(rows).writeStream.queryName("local").outputMode("update")
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(processingTime="300 milliseconds")
        self.query = writer.foreachBatch(self._sink).start()

    def advance(self, batches: int) -> None:
        goal = self.batches + batches

        def reached() -> bool:
            assert self.query.isActive, self.query.exception()
            return self.batches >= goal

        wait_for(reached, f"batch {goal}")

    def metrics(self) -> dict[str, int]:
        """Sums over the progress reports of this run."""
        sums: dict[str, int] = {}
        for progress in self.query.recentProgress:
            for operator in progress["stateOperators"]:
                for name, value in operator["customMetrics"].items():
                    sums[name] = sums.get(name, 0) + value
        return {name: value for name, value in sums.items() if name.startswith("rhino")}

    def state(self, **options: str) -> int:
        return int(self.spark.read.format("statestore").options(**options).load(str(self.checkpoint)).count())


def daemon(daemons: LocalDaemons, service: str) -> psutil.Process:
    running = daemons.directory.running()
    assert running is not None
    return next(child for child in psutil.Process(running.pid).children() if service in child.cmdline())


def lose(daemons: LocalDaemons, service: str) -> None:
    """kill -9, and the supervisor starts it again."""
    old = daemon(daemons, service)
    old.kill()

    def again() -> bool:
        try:
            return daemon(daemons, service) != old
        except (StopIteration, psutil.NoSuchProcess, psutil.ZombieProcess):
            return False

    wait_for(again, f"another {service}")


def jobs(manager: str) -> tuple[JobView, ...]:
    try:
        with HandoverClient(manager, timeout_s=2) as client:
            return client.jobs()
    except RhinoError:
        return ()


def main() -> None:
    daemons = join(Path(sys.argv[1]) / "state")
    conf = daemons.conf() | SMALL
    os.environ["RHINO_CLUSTER_KEY"] = str(daemons.directory.key)  # for the calls of this process
    manager = conf["spark.rhino.manager"]
    run = Run(SparkSession.builder.config(map=conf).getOrCreate(), Path(sys.argv[1]) / "checkpoint")
    run.start()
    run.advance(3)
    said: dict[str, object] = {}

    def settled() -> bool:
        found = jobs(manager)
        return bool(found) and all(v.actual_worker and v.desired_worker for v in found[0].virtual_nodes)

    wait_for(settled, "every virtual node has a worker")
    view = jobs(manager)[0]
    said["nodes"] = [(v.virtual_node, v.desired_worker, v.actual_worker) for v in view.virtual_nodes]
    said["first"] = run.metrics()

    daemon(daemons, "manager").suspend()  # away, and then gone
    run.advance(3)
    lose(daemons, "manager")
    run.advance(2)

    def followed() -> bool:
        found = jobs(manager)
        return bool(found) and found[0].connected and found[0].batch_id >= run.batches - 2

    wait_for(followed, "the new manager follows the query")
    said["before_loss"] = run.metrics()
    lose(daemons, "sidecar")
    run.advance(3)
    run.query.stop()
    run.start()
    run.advance(2)
    run.query.stop()
    said["restarted"] = run.metrics()
    batches = run.batches
    expected = {r.k: (r.n, r.s) for r in counted(run.spark.range(batches * ROWS).toDF("value")).collect()}
    said["differing"] = [k for k in expected.keys() | run.newest.keys() if expected.get(k) != run.newest.get(k)]
    said["batches"] = batches
    said["state"] = run.state()
    said["snapshot"] = run.state(batchId=str(batches - 3))
    said["changes"] = run.state(readChangeFeed="true", changeStartBatchId="1", changeEndBatchId="4")
    run.spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
