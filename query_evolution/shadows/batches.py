"""Runs one planned batch of a query with Spark, and keeps its rows. PySpark is needed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rhino_core.errors import IntegrityError
from spark_connector.checkpoint import rhino_checkpoint
from spark_connector.conf import SPARK_PROVIDER
from spark_connector.query_checkpoint import QueryCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def run_batch(
    rows: DataFrame, branch: QueryCheckpoint, output_mode: str, number: int, sink: Callable[[DataFrame, int], None]
) -> None:
    """Runs the next batch of a branch, from its offset log, and returns when it is committed.

    `sink` gets the rows of the batch and its number. Raises StreamingQueryException of PySpark if the code or the sink
    fails, and IntegrityError if Spark has run something else.
    """
    ran: list[int] = []

    def once(of_batch: DataFrame, batch: int) -> None:
        if batch != number:
            raise IntegrityError(f"{branch.folder}: Spark runs batch {batch}, expected {number}")
        sink(of_batch, batch)
        ran.append(batch)

    _run(rows.writeStream.foreachBatch(once), branch, output_mode, number, f"shadow {branch.job}")
    if not ran:
        raise IntegrityError(f"{branch.folder}: Spark has not run batch {number}")


def run_without_output(rows: DataFrame, checkpoint: QueryCheckpoint, output_mode: str, number: int) -> None:
    """As `run_batch`, for nothing but the state. Raises StreamingQueryException of PySpark, and IntegrityError."""
    _run(rows.writeStream.format("noop"), checkpoint, output_mode, number, f"rebuild {checkpoint.job}")


def _run(writer: DataStreamWriter, checkpoint: QueryCheckpoint, output_mode: str, number: int, name: str) -> None:
    writer = writer.queryName(name).outputMode(output_mode).option("checkpointLocation", location_of(checkpoint))
    query = writer.trigger(once=True).start()
    try:
        query.awaitTermination()
    finally:
        if query.isActive:  # the user has interrupted
            query.stop()
    if (newest := checkpoint.newest_commit()) != number:
        raise IntegrityError(f"{checkpoint.folder}: Spark has not committed batch {number}, but {newest}")


def location_of(branch: QueryCheckpoint) -> str:
    """Returns the `checkpointLocation`: on `rhino://` if the query has Spark's own provider."""
    folder = branch.folder.absolute()
    return rhino_checkpoint(folder) if branch.provider() == SPARK_PROVIDER else str(folder)


def keep(rows: DataFrame) -> DataFrame:
    """Computes rows once, and keeps them in the executors. Their loss is an error: state is not computed twice."""
    return rows.localCheckpoint(eager=True)


def let_go(kept: DataFrame) -> None:
    """Frees the rows kept by `keep`."""
    kept._jdf.queryExecution().logical().rdd().unpersist(False)
