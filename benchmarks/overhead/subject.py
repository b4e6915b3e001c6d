"""A query under one provider. Its slices alternate with those of its peer in the same session."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.overhead.loads import LOADS
from benchmarks.overhead.resources import Reading, read, wait_until_archived, wait_until_quiet
from rhino.testing import LocalCluster
from rhino.testing.query_watch import RunError
from rhino_archive.bucket import bucket
from rhino_archive.claims import claim
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import PROVIDER_KEY, QueryCheckpoint

PROVIDERS = {"stock": PROVIDER_CLASSES["checkpoint"], "rhino": PROVIDER_CLASSES["provider"]}
ARCHIVED = "archived"  # the subject "rhino" with an archive
WARM_UP = 2  # first batches of a slice: they start the query and load state
STALL_S = 120.0


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
    """`used`, `rows`: over the measured slices, warm-up included. `archive`: of the cluster; empty: there is none."""

    name: str
    load: str
    rows_per_batch: int
    folder: Path
    archive: str = ""
    batches: list[Batch] = field(default_factory=list)
    used: list[Reading] = field(default_factory=list)
    rows: int = 0

    def run(self, spark: SparkSession, cluster: LocalCluster, batches: int, *, counted: bool = True) -> None:
        """One slice of `WARM_UP` and `batches` batches. Raises RunError."""
        spark.conf.set(PROVIDER_KEY, PROVIDERS.get(self.name, PROVIDERS["rhino"]))
        make, mode = LOADS[self.load]
        if self.archive and self.name == "rhino" and not self._checkpoint.exists():
            self._stay_out()
        before = read(cluster, self.archive)
        query = (
            make(spark, self.rows_per_batch)
            .writeStream.outputMode(mode)
            .format("noop")
            .option("checkpointLocation", str(self._checkpoint))
            .start()
        )
        try:
            found: dict[int, Batch] = {}
            deadline = time.monotonic() + STALL_S + batches
            while len(found) < WARM_UP + batches:
                if (error := query.exception()) is not None:
                    raise RunError(f"{self.name} {self.load}: {error}")
                if time.monotonic() > deadline:
                    raise RunError(f"{self.name} {self.load}: {len(found)} batches in {STALL_S + batches:g} s")
                time.sleep(0.2)
                found.update(_batches(query))
        finally:
            query.stop()
        found.update(_batches(query))
        if self.name == ARCHIVED:
            wait_until_archived(cluster, QueryCheckpoint(self._checkpoint).job)
        wait_until_quiet(cluster)
        os.sync()  # nor does the disk owe anything
        if counted:
            self.rows += sum(batch.rows for batch in found.values())
            self.batches += [found[number] for number in sorted(found)][WARM_UP : WARM_UP + batches]
            self.used.append(read(cluster, self.archive).since(before))

    @property
    def _checkpoint(self) -> Path:
        return self.folder / f"{self.name}-{self.load}"

    def _stay_out(self) -> None:
        """Its archive belongs to another cluster, so this one does not write it."""
        job = str(uuid.uuid4())
        self._checkpoint.mkdir(parents=True)
        (self._checkpoint / "metadata").write_text(json.dumps({"id": job}))
        asyncio.run(claim(bucket(self.archive), job, "another", force=True))


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
