"""Run by test_python_workers.py: a query without Python functions, in a local session of two slots."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BooleanType

from rhino import Modifications, local_session
from tests.spark.notebook.sessions import SMALL
from tests.spark.python_workers import until


def small(values: pd.Series) -> pd.Series:
    return values < 5


def start(spark: SparkSession, checkpoint: Path) -> StreamingQuery:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2).load()
    marked = source.select("value").observe("read", F.count(F.lit(1)).alias("rows"))
    counts = marked.groupBy(F.col("value") % 3).count().writeStream.outputMode("update").format("noop")
    return counts.option("checkpointLocation", str(checkpoint)).trigger(processingTime="1 second").start()


def with_pandas() -> list[int]:
    """The processes below this one that have loaded pandas."""
    return sorted(its.pid for its in psutil.Process().children(recursive=True) if any(map(of_pandas, files_of(its))))


def of_pandas(file: str) -> bool:
    return "/pandas/" in file


def files_of(its: psutil.Process) -> list[str]:
    try:
        return [mapped.path for mapped in its.memory_maps()]
    except psutil.NoSuchProcess:  # it has ended
        return []


def warms_up(jvm: Any) -> bool:
    return any(thread.getName() == "rhino-warm-up" for thread in jvm.java.lang.Thread.getAllStackTraces().keySet())


class Clock:
    """When Spark's factory of Python workers was last used. By fields: py4j cannot load the classes of all methods."""

    def __init__(self, jvm: Any) -> None:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        companion = loader.loadClass("org.apache.spark.SparkEnv$")
        env = self._field(companion, "env").get(self._field(companion, "MODULE$").get(None))
        factories = self._field(loader.loadClass("org.apache.spark.SparkEnv"), "pythonWorkers").get(env)
        self._factory = factories.values().head()
        factory = loader.loadClass("org.apache.spark.api.python.PythonWorkerFactory")
        self._last = self._field(factory, f"{factory.getName().replace('.', '$')}$$lastActivityNs")

    def _field(self, of: Any, name: str) -> Any:
        found = of.getDeclaredField(name)
        found.setAccessible(True)
        return found

    def read(self) -> int:
        return int(self._last.getLong(self._factory))


def main() -> None:
    folder = Path(sys.argv[1])
    spark = local_session({**SMALL, "spark.rhino.keepPythonWorkers": "true"}, data_dir=folder / "state")
    jvm: Any = spark._jvm
    workers = jvm.org.apache.spark.sql.execution.streaming.state.seam.PythonWorkers
    query, said = start(spark, folder / "checkpoint"), dict[str, Any]()
    until(lambda: workers.count() == 2 and not warms_up(jvm), query)
    said["one for each slot"] = workers.count() == 2
    before = with_pandas()
    said["with pandas"] = len(before)
    clock = Clock(jvm)
    first = clock.read()
    said["as good as used"] = until(lambda: clock.read() > first, query)
    changes = Modifications(folder / "checkpoint")
    number = changes.set_filter(
        "read", "small(value)", functions={"small": F.pandas_udf(small, BooleanType())}
    ).record.number
    said["change"] = changes.wait(number).state
    said["the same workers"] = with_pandas() == before
    query.stop()
    spark.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
