"""A query on a copy of a checkpoint folder: refused, and the original goes on with all its state."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rhino import rhino_conf
from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from tests.spark.conftest import SharedSession
from tests.spark.queries import QUERIES
from tests.spark.run import Run, assert_equals_batch, job
from tests.spark.support.bad_input import REPOSITORY, SMALL

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(300)]
PARTITIONS = {"spark.sql.shuffle.partitions": "2"}
RETAINED = {"spark.sql.streaming.minBatchesToRetain": "2"}  # floors follow the newest batch closely


@contextmanager
def another_driver(cluster: LocalCluster, folder: Path, batches: int) -> Iterator[Callable[[], str]]:
    """One with an executor of its own on worker 0; each call runs the query there and returns its error."""
    socket = cluster.socket.replace("{host}", cluster.workers[0].host)
    conf = SMALL | rhino_conf(cluster.manager, socket=socket) | PARTITIONS | RETAINED
    command = [sys.executable, "-m", "tests.spark.copy_session", str(folder), str(batches), json.dumps(conf)]
    with (
        (cluster.log_dir / "copy.log").open("w") as log,
        subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as driver,
    ):
        assert driver.stdin is not None
        assert driver.stdout is not None
        stdin, stdout = driver.stdin, driver.stdout

        def run() -> str:
            print("run", file=stdin, flush=True)
            said = next((line for line in stdout if line.startswith("{")), "")
            assert said, Path(log.name).read_text()[-3000:]
            return str(json.loads(said)["error"])

        yield run


def test_a_copy_is_refused_and_the_original_goes_on(
    cluster: LocalCluster, shared: SharedSession, tmp_path: Path
) -> None:
    with shared.with_settings(PARTITIONS | RETAINED) as spark:
        run = Run(spark, QUERIES["aggregation"], tmp_path / "original")
        running = run.start()
        run.advance(running, 2)
        running.stop()
        shutil.copytree(run.checkpoint, tmp_path / "copy" / "checkpoint")
        with another_driver(cluster, tmp_path / "copy", 20) as run_copy:
            for original_runs in (True, False):
                if original_runs:
                    running = run.start()
                    run.advance(running, 1)
                error = run_copy()
                assert f"the checkpoint file:{tmp_path}/copy/checkpoint has the id of job" in error
                assert f"whose checkpoint is file:{run.checkpoint}" in error
                assert "rhino moved --job" in error
                if original_runs:
                    assert job(cluster, "aggregation"), "the original is connected"
                    run.advance(running, 3)
                    running.stop()
        running = run.start()  # loads what it has committed
        run.advance(running, 2)
        running.stop()
        assert_equals_batch(run)
        (known,) = [j for j in fetch_overview(cluster.manager).jobs if j.location == f"file:{run.checkpoint}"]
        assert known.batch_id == run.logged() - 1
