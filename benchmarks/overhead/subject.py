"""A query under one provider. Its slices alternate with those of its peer in the same session."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.overhead.loads import LOADS
from benchmarks.overhead.resources import Reading, read, wait_until_quiet
from rhino.testing import LocalCluster
from rhino_core.errors import RhinoError
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import PROVIDER_KEY

PROVIDERS = {"stock": PROVIDER_CLASSES["checkpoint"], "rhino": PROVIDER_CLASSES["provider"]}
WARM_UP = 2  # first batches of a slice: they start the query and load state
STALL_S = 120.0


class OverheadError(RhinoError):
    """A query failed or hangs."""


@dataclass(frozen=True, slots=True)
class Batch:
    """`commit_ms`: until the state was committed, sum over the tasks. `state_rows` after the batch."""

    batch_id: int
    duration_ms: int
    rows: int
    commit_ms: int
    rhino_commit_ms: int
    state_rows: int


@dataclass(slots=True)
class Subject:
    """`used`, `rows`: over the measured slices, warm-up included."""

    name: str
    load: str
    rows_per_batch: int
    folder: Path
    batches: list[Batch] = field(default_factory=list)
    used: list[Reading] = field(default_factory=list)
    rows: int = 0

    def run(self, spark: SparkSession, cluster: LocalCluster, batches: int, *, counted: bool = True) -> None:
        """One slice of `WARM_UP` and `batches` batches. Raises OverheadError."""
        spark.conf.set(PROVIDER_KEY, PROVIDERS[self.name])
        make, mode = LOADS[self.load]
        before = read(cluster)
        query = (
            make(spark, self.rows_per_batch)
            .writeStream.outputMode(mode)
            .format("noop")
            .option("checkpointLocation", str(self.folder / f"{self.name}-{self.load}"))
            .start()
        )
        try:
            found: dict[int, Batch] = {}
            deadline = time.monotonic() + STALL_S + batches
            while len(found) < WARM_UP + batches:
                if (error := query.exception()) is not None:
                    raise OverheadError(f"{self.name} {self.load}: {error}")
                if time.monotonic() > deadline:
                    raise OverheadError(f"{self.name} {self.load}: {len(found)} batches in {STALL_S + batches:g} s")
                time.sleep(0.2)
                found.update(_batches(query))
        finally:
            query.stop()
        found.update(_batches(query))
        wait_until_quiet(cluster)
        os.sync()  # nor does the disk owe anything
        if counted:
            self.rows += sum(batch.rows for batch in found.values())
            self.batches += [found[number] for number in sorted(found)][WARM_UP : WARM_UP + batches]
            self.used.append(read(cluster).since(before))


def _batches(query: StreamingQuery) -> dict[int, Batch]:
    return {p["batchId"]: _batch(p) for p in query.recentProgress if p["numInputRows"]}


def _batch(progress: dict[str, Any]) -> Batch:
    operators = progress["stateOperators"]
    return Batch(
        progress["batchId"],
        progress["durationMs"]["triggerExecution"],
        progress["numInputRows"],
        sum(operator["commitTimeMs"] for operator in operators),
        sum(operator["customMetrics"].get("rhinoCommitMs", 0) for operator in operators),
        sum(operator["numRowsTotal"] for operator in operators),
    )
