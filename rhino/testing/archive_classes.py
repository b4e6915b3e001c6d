"""`python -m rhino.testing.archive_classes`: creates the class archive for this Java and PySpark, if it is missing."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rhino.testing.class_archive import archive
from rhino.testing.session import close_driver, output_into
from rhino_core.errors import RhinoError, UnavailableError
from spark_connector.java import find_java, spark_java_home
from spark_connector.local.daemons import temporary_daemons

TRAINING_TIMEOUT_S = 120.0
DUMP_TIMEOUT_S = 180.0


def make(path: Path) -> None:
    """Runs queries in a JVM. It writes the archive at its exit. Raises OSError, or UnavailableError if it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        written = Path(folder) / path.name
        os.environ["JAVA_HOME"] = str(spark_java_home(find_java()))
        output = Path(folder) / "output"
        with output_into(output), temporary_daemons() as daemons:
            _train(written, Path(folder), daemons.conf())
        if not written.is_file():
            said = output.read_text()
            raise UnavailableError(f"{find_java()} has not written {path}: {said[-1000:].strip()}")
        written.replace(path)  # atomically: other processes see the complete file or none


def _train(written: Path, folder: Path, conf: dict[str, str]) -> None:
    settings = conf | {
        "spark.master": "local[2]",
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={written}",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    }
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    try:
        _run_queries(spark, folder)
    finally:
        spark.stop()
        close_driver(DUMP_TIMEOUT_S)  # the JVM writes the archive at its end


def _run_queries(spark: SparkSession, folder: Path) -> None:
    """Runs the queries of tests and the demo: a join and an aggregation on replicated state, files written and read."""

    def rows() -> DataFrame:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
        return source.withColumn("at", F.window("timestamp", "10 seconds"))

    joined = rows().join(rows().select("value", "at"), ["value", "at"])
    counted = rows().groupBy(F.col("value") % 7).count()
    for name, query, mode in (("joined", joined, "append"), ("counted", counted, "update")):
        writer = query.writeStream.outputMode(mode).option("checkpointLocation", str(folder / "checkpoints" / name))
        if mode == "append":
            running = writer.format("parquet").start(str(folder / name))
        else:
            running = writer.foreachBatch(lambda batch, _: batch.collect()).start()
        deadline = time.monotonic() + TRAINING_TIMEOUT_S
        while (last := running.lastProgress) is None or last["batchId"] < 4:
            if (error := running.exception()) is not None or time.monotonic() > deadline:
                raise UnavailableError(f"query {name} for the class archive: {error or 'too slow'}")
            time.sleep(0.1)
        running.stop()
    spark.read.parquet(str(folder / "joined")).groupBy().count().collect()


def main() -> int:
    path = archive()
    if path.is_file():
        return 0
    print("making an archive of Spark's classes (20 to 60 s)", file=sys.stderr, flush=True)
    started = time.monotonic()
    try:
        make(path)
    except (RhinoError, OSError, PySparkException, Py4JError) as error:
        print(f"no archive of classes, JVMs will start more slowly: {error}", file=sys.stderr)
        return 0
    print(f"made {path} in {time.monotonic() - started:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
