"""A real local Spark: snapshots share data files for as long as RocksDB has them (Rhino 4.2.2, incremental)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_connector.shared_files_session import RETAINED

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(200)]
ROOT = Path(__file__).parents[2]
MODULE = "tests.spark_connector.shared_files_session"


def test_a_data_file_keeps_its_name_however_old_it_is(tmp_path: Path) -> None:
    """Spark's default gives it another one, and so sends it again, once it is older than the versions it retains."""
    command = [sys.executable, "-m", MODULE, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    versions: dict[str, list[int]] = {}
    for version, names in json.loads(result.stdout.splitlines()[-1]).items():
        for name in names:
            versions.setdefault(name, []).append(int(version))
    assert max(max(named) - min(named) for named in versions.values()) > RETAINED, versions
