"""Run by test_shared_files.py in a process of its own: which snapshots of a running query name which data file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rhino_core.ids import parse_name
from spark_connector.local.daemons import join
from tests.spark_connector.local.one_query import SMALL, Run, wait_for
from worker_runtime.storage.arriving.zips import zip_references

RETAINED = 1  # versions behind the newest that Spark keeps
SNAPSHOTS = 8
CONF = SMALL | {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
}


def main() -> None:
    conf = join(Path(sys.argv[1]) / "state").conf() | CONF
    run = Run(SparkSession.builder.config(map=conf).getOrCreate(), Path(sys.argv[1]) / "checkpoint")
    stores = Path(conf["spark.rhino.socket"]).parent
    named: dict[int, list[str]] = {}

    def has_snapshots() -> bool:
        assert run.query.isActive, run.query.exception()
        for path in stores.rglob("*.zip"):
            version = parse_name(path.name).version
            assert version is not None
            if version.version not in named:
                try:
                    named[version.version] = sorted(zip_references(path))
                except FileNotFoundError:
                    continue  # collected meanwhile
        return len(named) >= SNAPSHOTS

    run.start()
    wait_for(has_snapshots, f"{SNAPSHOTS} snapshots", timeout_s=120)
    run.query.stop()
    run.spark.stop()
    print(json.dumps(named))


if __name__ == "__main__":
    main()
