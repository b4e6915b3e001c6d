"""Parts of the tests of takeover that other tests use as well."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rhino.cli.main import app
from rhino.client.overview import fetch_overview
from rhino.testing import LocalCluster
from rhino_core.errors import RhinoError
from spark_connector.conf import PROVIDER_CLASSES
from spark_connector.query_checkpoint import PROVIDER_KEY
from tests.spark.conftest import wait_for
from tests.spark.run import Run

STOCK, RHINO = PROVIDER_CLASSES["checkpoint"], PROVIDER_CLASSES["provider"]


SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # Snapshots and changelogs both are taken over.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}


QUIET_S = 2.0  # several maintenance intervals


class Tool:
    """The command, on the node of worker 0."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._socket = cluster.socket.replace("{host}", cluster.workers[0].host)

    def __call__(self, command: str, checkpoint: Path, *options: str) -> dict[str, object]:
        arguments = [command, str(checkpoint), "--socket", self._socket, "--idle-s", "0", "--json", *options]
        arguments += ["--yes"] if command == "release" else []
        result = CliRunner().invoke(app, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        outcome: dict[str, object] = json.loads(result.stdout)
        return outcome


def advance(run: Run, provider: str, batches: int) -> None:
    run.spark.conf.set(PROVIDER_KEY, provider)
    running = run.start()
    run.advance(running, batches)
    running.stop()
    wait_for(partial(_is_quiet, run.checkpoint), "end of the uploads of Spark's maintenance")


def _is_quiet(checkpoint: Path) -> bool:
    """Whether nothing has changed for some time: maintenance uploads snapshots after a query has stopped, too."""
    try:
        changed = max(path.lstat().st_mtime for path in checkpoint.rglob("*"))
    except FileNotFoundError:  # deleted meanwhile
        return False
    return time.time() - changed > QUIET_S


def refused(tool: Tool, kind: type[RhinoError], *arguments: str, match: str, folder: Path) -> None:
    with pytest.raises(kind, match=match):
        tool(arguments[0], folder, *arguments[1:])


def remove_state(folder: Path) -> None:
    """The files that were taken over: none of them may be needed from then on."""
    gone = [p for p in folder.rglob("*") if p.suffix in {".changelog", ".zip", ".sst", ".log"}]
    assert gone
    for path in gone:
        path.unlink()


def wait_until_over(cluster: LocalCluster, job: object) -> None:
    """The manager has heard of the query's end."""
    jobs = partial(fetch_overview, cluster.manager)
    wait_for(lambda: not any(known.job == job and known.connected for known in jobs().jobs), f"end of job {job}")
