"""A real local Spark of a data directory: lost manager, lost sidecar, a restart, Spark's state reader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark_connector.local.one_query import KEYS, PARTITIONS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).with_name("one_query.py")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("local")
    command = [sys.executable, str(SCRIPT), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def test_output_equals_a_batch_computation_after_lost_daemons_and_a_restart(said: dict[str, Any]) -> None:
    assert said["batches"] >= 13
    assert said["differing"] == []


def test_the_manager_knows_where_every_virtual_node_runs(said: dict[str, Any]) -> None:
    assert said["nodes"] == [[f"0/{p}", "local", "local"] for p in range(PARTITIONS)]


def test_progress_shows_commits_and_where_loads_came_from(said: dict[str, Any]) -> None:
    assert said["first"]["rhinoCommitMs"] > 0
    # version 0 has nothing to load, and the load that warms an executor up is no task's
    assert said["first"]["rhinoPreparesLocal"] == said["before_loss"]["rhinoPreparesLocal"] == 0
    assert said["restarted"]["rhinoPreparesLocal"] == PARTITIONS
    assert said["restarted"]["rhinoPreparesRemote"] == said["restarted"]["rhinoFetchedBytes"] == 0


def test_sparks_state_reader_sees_every_partition_and_change(said: dict[str, Any]) -> None:
    assert (said["state"], said["snapshot"]) == (KEYS, KEYS)
    assert said["changes"] == 4 * KEYS
