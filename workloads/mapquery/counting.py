"""Numbers with their creation time. Each instance appends the count of numbers that it has received so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import DataFrame, SparkSession

from rhino_core.setting import require
from workloads.nexmark.output import count
from workloads.trial.job import Job, Sink
from workloads.trial.timeline import Timeline

COLUMNS = ("value", "instance", "ordinal")


@dataclass(frozen=True, slots=True)
class Load:
    """`rate` numbers per second for `seconds`, independent of the query's speed, and `instances` map instances."""

    rate: int
    seconds: int
    instances: int

    def __post_init__(self) -> None:
        for name in ("rate", "seconds", "instances"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")


def job(load: Load) -> Job:
    def stream(spark: SparkSession) -> DataFrame:
        source = spark.readStream.format("rate").option("rowsPerSecond", load.rate).option("numPartitions", 2)
        rows = source.load().where(f"value < {load.rate * load.seconds}")
        tagged = rows.selectExpr(
            "value", f"value % {load.instances} as instance", "unix_millis(timestamp) as created_ms"
        )
        return tagged.groupBy("instance").applyInPandasWithState(
            _count,
            "value bigint, instance bigint, ordinal bigint, created_ms bigint",
            "received bigint",
            "append",
            "NoTimeout",
        )

    def answer(db: duckdb.DuckDBPyConnection) -> str:
        return f"""
            select range, range % {load.instances}, range // {load.instances} + 1
            from range({load.rate * load.seconds})
        """

    return Job(
        name="map-query",
        columns=COLUMNS,
        stream=stream,
        goal=load.seconds,
        events=load.rate * load.seconds,
        answer=answer,
        position=_seconds_read,
        sink=Sink.BATCHES,
        partitions=load.instances,
    )


def _count(key: tuple[int], batches: Iterator[Any], state: Any) -> Iterator[Any]:
    import pandas as pd

    rows = pd.concat(list(batches)).sort_values("value")
    received = state.get[0] if state.exists else 0
    ordinals = range(received + 1, received + len(rows) + 1)
    state.update((received + len(rows),))
    yield rows.assign(ordinal=ordinals)[["value", "instance", "ordinal", "created_ms"]]


def _seconds_read(checkpoint: Path, committed: int) -> int:
    """Returns the offset of the rate source, which is the number of seconds so far.

    It is the last line of a batch's entry in the offset log.
    """
    return int((checkpoint / "offsets" / str(committed)).read_text().splitlines()[-1])


@dataclass(frozen=True, slots=True)
class Latency:
    """Time from a number's creation to the end of its batch, over all numbers, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float


def latency(output: Path, timeline: Timeline) -> Latency:
    """Computes the latency per record, as in the paper. It includes the wait for a slow batch or a fault."""
    ends = [(b.batch_id, b.started_ms + b.duration_ms) for b in timeline.ordered()]
    with duckdb.connect() as db:
        db.execute("create table ends (batch int, ended_ms bigint)")
        db.executemany("insert into ends values (?, ?)", ends)
        db.execute(
            "create table waits as select ended_ms - created_ms as ms "
            f"from read_parquet('{output}/*/*.parquet', hive_partitioning = true) rows join ends "
            "on rows.batch::int = ends.batch"
        )
        assert count(db, "waits") > 0
        found = db.execute("select quantile_cont(ms, 0.5), quantile_cont(ms, 0.99), max(ms) from waits").fetchone()
    assert found is not None
    return Latency(*(float(value) for value in found))
