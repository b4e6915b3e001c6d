"""Makes Spark describe the stateful operators of new code, as it would plan it on the checkpoint of a running query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from query_evolution.structure.operators import read_operators
from rhino_core.errors import AlreadyThereError, PreconditionError
from spark_connector.conf import SPARK_PROVIDER
from spark_connector.query_checkpoint import PROVIDER_KEY, QueryCheckpoint
from spark_connector.running_session import check_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.02


def sketch(
    rows: DataFrame, source: Path, folder: Path, *, output_mode: str = "append", timeout_s: float = 60.0
) -> Path:
    """Begins `rows` as a query without output in the checkpoint `folder`, and stops it once its first batch is planned.

    `rows`: the streaming DataFrame of the new code, without its sink. `source`: the checkpoint of the query with the
    state to keep. Its settings are those of the plan: while the query starts, they are set in the session. Start no
    other query in it meanwhile. Returns `folder`. You may delete it after `restructure`.

    Raises AlreadyThereError if `folder` exists, and PreconditionError if the query fails, plans no batch within
    `timeout_s` seconds (its sources need at least one row), has operators that cannot be restructured, or belongs to
    Spark Connect.
    """
    if folder.exists():
        raise AlreadyThereError(f"{folder}: is there already; give a folder that does not exist")
    with begun(rows, source, folder, output_mode=output_mode, timeout_s=timeout_s):
        pass
    read_operators(folder)
    return folder


@contextmanager
def begun(
    rows: DataFrame, source: Path, folder: Path, *, output_mode: str, timeout_s: float, provider: str = SPARK_PROVIDER
) -> Iterator[StreamingQuery]:
    """Yields the query of `sketch` once its first batch is planned, and stops it at the end. Raises as `sketch`.

    `provider`: the class of its state store. It must know no query but this one.
    """
    check_rows(rows)
    spark = rows.sparkSession
    settings = {key: str(value) for key, value in QueryCheckpoint(source).settings().items()}
    with _set(spark, settings | {PROVIDER_KEY: provider}):
        writer = rows.writeStream.format("noop").outputMode(output_mode)
        query = writer.option("checkpointLocation", str(folder)).start()
    try:
        _wait_until_planned(spark, query, folder, timeout_s)
        yield query
    finally:
        query.stop()


def _wait_until_planned(spark: SparkSession, query: StreamingQuery, folder: Path, timeout_s: float) -> None:
    """A batch is planned before its first job. A batch without a job is committed."""
    deadline = time.monotonic() + timeout_s
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getJobIdsForGroup(str(query.runId)) and not (folder / "commits" / "0").exists():
        if (error := query.exception()) is not None:
            raise PreconditionError(f"{folder}: the new code fails: {error}") from error
        if time.monotonic() > deadline:
            raise PreconditionError(
                f"{folder}: no batch was planned within {timeout_s:g} s; the sources of the new code need a row"
            )
        time.sleep(POLL_S)


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets settings of the session for a while. A query keeps the ones of its start."""
    before: dict[str, Any] = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, was in before.items():
            if was is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, was)
