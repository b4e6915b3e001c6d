"""The sources of the live query's rows: a function, the folder of Spark's file sink, or its code on a branch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from query_evolution.shadows.batches import keep, let_go, run_batch
from query_evolution.shadows.following import Follower, LiveBatch
from rhino_core.errors import InvalidRequestError, PreconditionError
from rhino_core.foreign import read_text, reading
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.rewind.sink_log import FOLDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ENTRY = re.compile(r"(\d+)(\.compact)?")


class LiveOutput:
    """The live query's output of one batch. Subclasses know its place."""

    def check(self, live: QueryCheckpoint) -> None:
        """Called once, before all batches. Raises PreconditionError if the output cannot be had."""

    def begin(self, batch: LiveBatch) -> None:
        """Called before the shadow runs the batch. The live query has committed it."""

    def rows(self, spark: SparkSession, batch: int, schema: StructType) -> DataFrame | None:
        """Returns the rows of a batch, None if it has none. `schema`: of the shadow's rows."""
        raise NotImplementedError

    def end(self) -> None:
        """Called after the shadow has run the batch, or has failed."""


class Written(LiveOutput):
    """Calls a function of the user with the session and the number of a batch. It returns the rows, or None."""

    def __init__(self, read: Callable[[SparkSession, int], DataFrame | None]) -> None:
        self._read = read

    def rows(self, spark: SparkSession, batch: int, schema: StructType) -> DataFrame | None:
        return self._read(spark, batch)


class FileSink(LiveOutput):
    """The folder of Spark's file sink in the live query. Its log names the files of each batch.

    `format`, `options`: as for `spark.read`.
    """

    def __init__(self, folder: Path, format: str = "parquet", options: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._format = format
        self._options = dict(options or {})

    def check(self, live: QueryCheckpoint) -> None:
        if not (self._folder / FOLDER).is_dir():
            raise PreconditionError(f"{self._folder}: is no output folder of Spark's file sink: it has no {FOLDER}")

    def rows(self, spark: SparkSession, batch: int, schema: StructType) -> DataFrame | None:
        paths = self.paths(batch)
        if not paths:
            return None
        reader = spark.read.format(self._format).options(**self._options).option("basePath", str(self._folder))
        return reader.schema(schema).load(paths)

    def paths(self, batch: int) -> list[str]:
        """Returns the files of a batch. Raises PreconditionError if the log does not tell them apart any more.

        A compaction (every tenth entry) names the files of all batches before it, too.
        """
        names = {path.name for path in (self._folder / FOLDER).iterdir() if _ENTRY.fullmatch(path.name)}
        if str(batch) in names:
            return self._named(str(batch))
        if f"{batch}.compact" not in names:
            raise PreconditionError(
                f"{self._folder / FOLDER}: has no entry for batch {batch}: this query writes somewhere else, or the "
                "entry was deleted (spark.sql.streaming.fileSink.log.cleanupDelay); make a new branch"
            )
        compactions = [_number(name) for name in names if name.endswith(".compact")]
        former = max((number for number in compactions if number < batch), default=-1)
        before: set[str] = set(self._named(f"{former}.compact")) if former >= 0 else set()
        for number in range(former + 1, batch):
            if str(number) not in names:
                raise PreconditionError(f"{self._folder / FOLDER}: has no entry {number} any more; make a new branch")
            before |= set(self._named(str(number)))
        return [path for path in self._named(f"{batch}.compact") if path not in before]

    def _named(self, entry: str) -> list[str]:
        path = self._folder / FOLDER / entry
        lines = read_text(path).splitlines()[1:]
        with reading(path):
            return [
                unquote(fields["path"]) for fields in map(json.loads, lines) if fields.get("action", "add") == "add"
            ]


class Recomputed(LiveOutput):
    """The code of the live query runs on another branch of it, as a shadow does. So its sink may be any.

    `rows`: the streaming DataFrame of the live query's code, without its sink. `branch`: the checkpoint of its branch.
    """

    def __init__(self, rows: DataFrame, branch: Path, *, output_mode: str = "append") -> None:
        self._rows = rows
        self._branch = QueryCheckpoint(branch)
        self._output_mode = output_mode
        self._follower: Follower | None = None
        self._kept: DataFrame | None = None

    def check(self, live: QueryCheckpoint) -> None:
        self._follower = Follower(live, self._branch)

    def begin(self, batch: LiveBatch) -> None:
        """Runs the batch, and keeps its rows in the executors.

        A killed run may have committed the batch here, and not on the shadow's branch: then it is taken back.
        """
        if self._follower is None:
            raise PreconditionError(f"{self._branch.folder}: check() was not called")
        if self._follower.next_batch() == batch.number + 1:
            self._follower.take_back(batch.number)
        if (following := self._follower.next_batch()) != batch.number:
            raise PreconditionError(
                f"{self._branch.folder}: goes on with batch {following}, and the shadow with batch {batch.number}; "
                "make both branches after the same batch"
            )
        self._follower.plan(batch)

        def keep_rows(rows: DataFrame, number: int) -> None:
            self._kept = keep(rows)

        run_batch(self._rows, self._branch, self._output_mode, batch.number, keep_rows)

    def rows(self, spark: SparkSession, batch: int, schema: StructType) -> DataFrame | None:
        return self._kept

    def end(self) -> None:
        if self._kept is not None:
            let_go(self._kept)
            self._kept = None


def live_output(given: LiveOutput | Callable[[SparkSession, int], DataFrame | None]) -> LiveOutput:
    """Returns `given`, or wraps a function. Raises InvalidRequestError for anything else."""
    if isinstance(given, LiveOutput):
        return given
    if callable(given):
        return Written(given)
    raise InvalidRequestError(
        f"output {given!r}: must be a FileSink, a Recomputed, or a function (session, batch) that returns rows"
    )


def _number(name: str) -> int:
    return int(name.partition(".")[0])
