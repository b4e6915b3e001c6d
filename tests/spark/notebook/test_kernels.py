"""Notebooks: what a query's state survives, in real Jupyter kernels with real sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rhino.testing.rhino_daemons import serving
from rhino.testing.spark_daemons import lean_jvm
from rhino_core.errors import RhinoError
from spark_connector.local.daemons import end_unused
from spark_connector.local.directory import LocalDirectory
from tests.spark.conftest import wait_for
from tests.spark.notebook.kernel import Kernel, kernel

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]
ROWS = 50  # of a batch
SESSION = f"""
import time
from rhino import local_session

spark = local_session({{
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": "{" ".join(lean_jvm())}",
}})

def start(checkpoint):
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", {ROWS}).load()
    counts = rows.selectExpr("value % 7 as key").groupBy("key").count()
    seen = []  # of each batch: its number, and all rows so far
    def sink(batch, number):
        seen.append((number, sum(row["count"] for row in batch.collect())))
    writer = counts.writeStream.queryName(checkpoint).outputMode("update").option("checkpointLocation", checkpoint)
    return writer.foreachBatch(sink).start(), seen

def batches(query, seen, number):
    while len(seen) < number:
        assert query.isActive, query.exception()
        time.sleep(0.05)
    return list(seen)
"""
START = "query, seen = start({checkpoint!r})"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    directory = LocalDirectory(tmp_path / "rhino-state" / "local")
    with suppress(RhinoError):
        end_unused(directory).release()


def begin(notebook: Kernel, checkpoint: str) -> list[tuple[int, int]]:
    """Starts the query and returns its first three batches."""
    notebook.run(START.format(checkpoint=checkpoint))
    return advance(notebook, 3)


def advance(notebook: Kernel, number: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = notebook.run(f"batches(query, seen, {number})")
    return found


def is_exact(seen: list[tuple[int, int]]) -> bool:
    """Whether each batch has counted the rows of all batches before it: the state was there."""
    numbers = [number for number, _ in seen]
    return numbers == list(range(numbers[0], numbers[0] + len(seen))) and all(
        total == ROWS * (number + 1) for number, total in seen
    )


def follows(seen: list[tuple[int, int]], before: list[tuple[int, int]]) -> bool:
    """Whether the batches go on where those before ended: a batch whose commit a stop cut off runs again."""
    return seen[0][0] >= before[-1][0] and is_exact(seen)


def test_a_query_continues_through_stop_buttons_and_restarts_of_its_kernel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = LocalDirectory(folder / "rhino-state" / "local")
    monkeypatch.setenv("RHINO_CLUSTER_KEY", str(directory.key))  # for the calls of this process
    with kernel(folder) as notebook:
        notebook.run(SESSION)
        assert f"Rhino keeps state in {directory.path} (rhino local clean deletes it)" in notebook.printed
        first = begin(notebook, "counts")
        assert first[0][0] == 0
        assert is_exact(first)

        before = directory.running()
        assert before is not None
        assert "KeyboardInterrupt" in notebook.run_and_stop("query.awaitTermination()", after_s=2)
        assert directory.running() == before
        assert serving(before.manager)
        notebook.run("query.stop()")
        interrupted = begin(notebook, "counts")
        assert follows(interrupted, first)

        notebook.kill_and_restart()
        notebook.run(SESSION)
        killed = begin(notebook, "counts")
        assert follows(killed, interrupted)

        notebook.run("query.stop(); spark.stop()")
        notebook.run(SESSION)
        stopped = begin(notebook, "counts")
        assert follows(stopped, killed)
    wait_for(lambda: not directory.supervisor.is_held(), "the daemons end with the notebook")

    with kernel(folder) as another:
        another.run(SESSION)
        later = begin(another, "counts")
        assert follows(later, stopped)


def test_two_notebooks_share_daemons_and_hand_a_query_over(folder: Path) -> None:
    with kernel(folder) as other, kernel(folder) as one:
        one.run(SESSION)
        other.run(SESSION)
        manager = 'spark.conf.get("spark.rhino.manager")'
        assert one.run(manager) == other.run(manager)
        assert is_exact(begin(one, "first"))
        assert is_exact(begin(other, "second"))

        ran = advance(one, 6)
        assert is_exact(ran)

        other.run("query.stop()")
        one.kill_and_restart()
        wait_for(lambda: not _refused(other), "the query of the killed notebook can be started")
        taken = advance(other, 3)
        assert follows(taken, ran)


def _refused(notebook: Kernel) -> bool:
    """Starts the query "first" and says whether it was refused."""
    notebook.run(START.format(checkpoint="first"))
    return bool(notebook.run("while query.isActive and not seen: time.sleep(0.05)\nnot seen"))
