"""Local mode, in which Spark's scheduler looks for tasks to start only when one ends.

A stage may have tasks where a store is, and others where the files of a shuffle are. If these places had different
names, Spark would wait 3 s for an offer of the second name, and nobody would look again: the query would hang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_connector.local.one_query import PARTITIONS

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(200)]
ROOT = Path(__file__).parents[3]
MODULE = "tests.spark_connector.local.named_host"


def test_a_store_is_located_on_the_host_that_has_the_files_of_shuffles(tmp_path: Path) -> None:
    env = os.environ | {"SPARK_LOCAL_HOSTNAME": "localhost"}  # the scheduler's name; the driver's is 127.0.0.1
    command = [sys.executable, "-m", MODULE, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    assert json.loads(result.stdout.splitlines()[-1]) == ["executor_127.0.0.1_driver"] * PARTITIONS
