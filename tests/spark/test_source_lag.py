"""What a source is behind: a query that reads a backlog in batches of limited size is known to be catching up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from typer.testing import CliRunner

from rhino import HandoverClient
from rhino.cli.main import app
from rhino.testing import LocalCluster
from rhino_model.decisions import Outcome
from tests.spark.conftest import SharedSession, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(560)]
NAME, ROWS, BATCH = "behind", 100_000, 50


def limited() -> type[DataSource]:
    """A source of ROWS rows that gives BATCH to a batch. Made here, so that executors get its code with it."""
    rows, batch = ROWS, BATCH

    class Part(InputPartition):  # type: ignore[misc]
        def __init__(self, start: int, end: int) -> None:
            self.start, self.end = start, end

    class Reader(DataSourceStreamReader):  # type: ignore[misc]
        def initialOffset(self) -> dict[str, int]:
            return {"row": 0}

        def getDefaultReadLimit(self) -> object:
            from pyspark.sql.streaming.datasource import ReadMaxRows

            return ReadMaxRows(batch)

        def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:
            return {"row": min(start["row"] + getattr(limit, "max_rows", rows), rows)}

        def reportLatestOffset(self) -> dict[str, int]:
            return {"row": rows}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [Part(start["row"], end["row"])]

        def read(self, partition: Part) -> Iterator[tuple[int]]:
            for value in range(partition.start, partition.end):
                yield (value,)

    class Limited(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "limited"

        def schema(self) -> str:
            return "value bigint"

        def streamReader(self, schema: object) -> Reader:
            return Reader()

    return Limited


@pytest.fixture
def spark(shared: SharedSession) -> Iterator[SparkSession]:
    with shared.with_settings({"spark.sql.shuffle.partitions": "2"}) as session:
        yield session


def test_what_is_left_to_read_is_reported_with_each_batch(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(limited())
    rows = spark.readStream.format("limited").load()
    query = (
        rows.groupBy((F.col("value") % 7).alias("k"))
        .count()
        .writeStream.queryName(NAME)
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .format("noop")
        .trigger(processingTime="250 milliseconds")
        .start()
    )
    with HandoverClient(cluster.manager) as client:
        wait_for(lambda: NAME in {job.name for job in client.jobs()}, "the query is known", timeout_s=240)
        for number, load in enumerate(client.watch_load(NAME)):
            (lag,) = load.lags
            assert (lag.unit, lag.read) == ("offsets", BATCH if load.batch_id else 0)  # the first batch has no start
            assert lag.behind == ROWS - BATCH * (load.batch_id + 1)
            assert lag.source == "PythonMicroBatchStreamWithAdmissionControl"
            if number == 8:
                break

        def told() -> bool:
            return Outcome.CATCHING_UP in {decision.outcome for decision in client.decisions(NAME).decisions}

        wait_for(told, "adaptation knows that the query is catching up")
    why = CliRunner().invoke(app, ["why", "--job", NAME, "--last", "1", "--manager", cluster.manager])
    assert "offsets behind, or" in why.output
    scale = CliRunner().invoke(app, ["scale", "--job", NAME, "--manager", cluster.manager])
    assert "usual batches behind" in scale.output
    query.stop()
