"""Run by test_copies.py in a process of its own: a driver that runs the aggregation from some query checkpoint.

Each line of standard input starts it once more; it ends with its input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.queries import QUERIES
from tests.spark.run import Run

TIMEOUT_S = 120.0


def main() -> None:
    """Arguments: folder with the checkpoint, batches that are enough, settings. Prints the error of each run."""
    spark = SparkSession.builder.config(map=json.loads(sys.argv[3])).getOrCreate()
    run = Run(spark, QUERIES["aggregation"], Path(sys.argv[1]))
    for _ in sys.stdin:
        attempt(run, int(sys.argv[2]))
    spark.stop()


def attempt(run: Run, batches: int) -> None:
    goal, deadline = run.logged() + batches, time.monotonic() + TIMEOUT_S
    running = run.start()
    while running.isActive and run.logged() < goal and time.monotonic() < deadline:
        time.sleep(0.2)
    if running.isActive:
        running.stop()
    error = running.exception()
    print(json.dumps({"error": "" if error is None else str(error)}), flush=True)


if __name__ == "__main__":
    main()
