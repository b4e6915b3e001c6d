"""Run by test_examine.py in a process of its own: stock Spark, in local mode, without anything of Rhino.

Makes the checkpoints in `BASES` below the folder in its argument, and prints a line. Then each line of standard input
names a base and a folder with `checkpoint` and `output`: the query goes on there for some batches, and all output is
compared with a batch computation. Prints the error as JSON; empty if it is right.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from spark_connector.conf import SPARK_PROVIDER, STREAMING
from spark_connector.query_checkpoint import FORMAT_KEY, PROVIDER_KEY
from spark_connector.takeover.files import CHANGELOGS_KEY
from spark_connector.takeover.hdfs_state import HDFS_PROVIDER
from tests.spark.conftest import wait_for
from tests.spark.operators import OPERATORS
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch

BATCHES = 8
TIMEOUT_S = 600.0
SETTINGS = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss8m",
    f"{STREAMING}.stateStore.minDeltasForSnapshot": "3",
    f"{STREAMING}.stateStore.maintenanceInterval": "200ms",
}
BASES = {  # query, provider, format, changelogs
    "rocks1": ("aggregation", SPARK_PROVIDER, "1", "true"),
    "rocks2": ("aggregation", SPARK_PROVIDER, "2", "true"),
    "plain1": ("aggregation", SPARK_PROVIDER, "1", "false"),
    "hdfs": ("aggregation", HDFS_PROVIDER, "1", "false"),
    "join": ("join2", SPARK_PROVIDER, "2", "true"),
    "transform": ("transform-timers", SPARK_PROVIDER, "2", "true"),
}


def run_of(spark: SparkSession, base: str, folder: Path) -> Run:
    query, provider, state_format, changelogs = BASES[base]
    conf = {PROVIDER_KEY: provider, FORMAT_KEY: state_format, CHANGELOGS_KEY: changelogs}
    for key, value in conf.items():
        spark.conf.set(key, value)
    return Run(spark, (QUERIES | OPERATORS)[query], folder)


def advance(run: Run, batches: int) -> None:
    goal, running = run.logged() + batches, run.start("600 milliseconds")

    def reached() -> bool:
        error = running.exception()
        assert error is None, str(error)
        return run.logged() >= goal

    try:
        wait_for(reached, f"batch {goal}", TIMEOUT_S)
    finally:
        running.stop()


def uploaded(checkpoint: Path) -> bool:
    """Whether each store with changelogs or deltas has a snapshot that is not its newest version."""
    folders = {path.parent for path in checkpoint.glob("state/**/1*.[cd]*") if path.suffix in (".changelog", ".delta")}
    return all([*folder.glob("[2-7]*.zip"), *folder.glob("[2-7].snapshot")] for folder in folders)


def settle(checkpoint: Path) -> None:
    """Leaves the checkpoint as it was after its batch 7: other times of the stop must not matter.

    A snapshot of the newest version goes as well, if it also has changes: maintenance has not come yet.
    """
    newest = BATCHES - 1
    changed = {path.parent for kind in ("changelog", "delta") for path in checkpoint.glob(f"state/**/*.{kind}")}
    for path in checkpoint.rglob("*"):
        number = path.name.removeprefix(".").split(".")[0].split("_")[0]
        limit = newest + 1 if path.relative_to(checkpoint).parts[0] == "state" else newest
        below = {*path.relative_to(checkpoint).parts} & {"SSTs", "_metadata", "_stateSchema"}
        if not path.is_file() or not number.isdigit() or below:
            continue
        late = limit + 1 if path.parent not in changed or {".zip", ".snapshot"}.isdisjoint(path.suffixes) else limit
        if int(number) >= late:
            path.unlink()


def attempt(spark: SparkSession, base: str, folder: Path) -> str:
    run = run_of(spark, base, folder)
    try:
        advance(run, 3)
        assert_equals_batch(run)
    except Exception as error:  # every way of failing is an answer here
        return str(error) or "wrong"
    return ""


def main() -> None:
    root = Path(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable  # a setting is not enough for transformWithState
    spark = SparkSession.builder.config(map=SETTINGS).getOrCreate()
    for base in BASES:
        # Spark's maintenance takes the newest snapshot when its turn comes. It may skip those that the damage needs.
        for _ in range(3):
            run = run_of(spark, base, root / base)
            advance(run, BATCHES)
            time.sleep(1)  # for uploads under way: they come after the query has stopped, too
            if uploaded(run.checkpoint):
                break
            shutil.rmtree(root / base)
        settle(run.checkpoint)
    print("made", flush=True)
    answer = partial(attempt, spark)
    for line in sys.stdin:
        base, folder = json.loads(line)
        print(json.dumps(answer(base, Path(folder))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
