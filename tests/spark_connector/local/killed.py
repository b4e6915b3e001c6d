"""Run by test_killed.py in a process of its own: one query that goes on until the process is killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from spark_connector.local.daemons import join
from tests.spark_connector.local.one_query import SMALL, Run

if __name__ == "__main__":
    conf = join(Path(sys.argv[1]) / "state").conf() | SMALL
    run = Run(SparkSession.builder.config(map=conf).getOrCreate(), Path(sys.argv[1]) / "checkpoint")
    run.start()
    run.advance(3)
    print("running", flush=True)
    while True:
        time.sleep(1)
