"""Counts per key over a preloaded domain. The state is as small as possible, which shows the cost of its partitions."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rhino_core.setting import require
from workloads.nexmark import draws, source
from workloads.nexmark.javarandom import Ints, Randoms
from workloads.trial.job import Job, Sink

# Neighbouring seeds still have close states after one step of the generator, but not after two. A state has 48 bits.
_SCATTERED = f"shiftleft({draws.step('(' + draws.step(draws.seed('number')) + ')')}, 16) ^ number"
PRELOAD_BATCHES = 4


@dataclass(frozen=True, slots=True)
class Load:
    """`domain` keys, each once in the first `PRELOAD_BATCHES` batches; then `updates` keys, drawn uniformly.

    The updates come in `batches` batches.
    """

    domain: int
    updates: int
    batches: int
    virtual_nodes: int

    def __post_init__(self) -> None:
        for name in ("domain", "updates", "batches", "virtual_nodes"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")

    @property
    def sizes(self) -> tuple[int, ...]:
        preload = source.equal_sizes(self.domain, PRELOAD_BATCHES)
        return preload + source.equal_sizes(self.updates, self.batches)


def job(kind: str, load: Load, name: str = "") -> Job:
    """Builds the job. `name` is derived from kind and virtual nodes by default.

    `kind` "hash": 64-bit keys scattered over all values. "key": dense numbers from 0.
    """
    scattered = kind == "hash"

    def stream(spark: SparkSession) -> DataFrame:
        rows = source.stream(spark, load.sizes)
        rows = draws.next_int(rows.selectExpr("n", f"{draws.seed('n')} as seed"), "drawn", str(load.domain))
        rows = rows.selectExpr(f"if(n < {load.domain}, n, drawn) as number")
        key = _SCATTERED if scattered else "number"
        return rows.selectExpr(f"{key} as key").groupBy("key").agg(F.count("*").alias("occurrences"))

    def answer(db: duckdb.DuckDBPyConnection) -> str:
        db.register("drawn", pa.table({"key": keys(load, scattered=scattered)}))
        return "select key, count(*) from drawn group by key"

    return Job(
        name=name or f"{kind}-count-{load.virtual_nodes}",
        columns=("key", "occurrences"),
        stream=stream,
        goal=len(load.sizes),
        events=sum(load.sizes),
        answer=answer,
        sink=Sink.CHANGES,
        key=("key",),
        partitions=load.virtual_nodes,
    )


def keys(load: Load, *, scattered: bool) -> Ints:
    """Computes the key of every event in numpy."""
    ids = np.arange(sum(load.sizes), dtype=np.int64)
    numbers = np.where(ids < load.domain, ids, Randoms(ids).next_int(load.domain))
    if not scattered:
        return numbers
    random = Randoms(numbers)
    random.next_48_bits()
    return random.next_48_bits() << 16 ^ numbers
