"""Parts of the tests of bad input that other tests use as well."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rhino.testing.spark_daemons import lean_jvm

REPOSITORY = Path(__file__).parents[3]


SMALL = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": " ".join(lean_jvm()),
    "spark.log.level": "WARN",
}


@dataclass(frozen=True)
class Outcome:
    done: bool
    error: str
    conf: dict[str, str]  # of the session; empty when there was none
    offsets: bool  # whether the checkpoint's offset log has an entry


def run_sessions(folder: Path, cases: dict[str, dict[str, str]]) -> tuple[dict[str, Outcome], str]:
    """Runs two batches of an aggregation under each set of settings; the outcomes by name, and the log.

    Cases that share the part of their name before ":" share a query checkpoint.
    """
    request = json.dumps({name: SMALL | conf for name, conf in cases.items()})
    command = [sys.executable, "-m", "tests.spark.sessions", str(folder)]
    result = subprocess.run(
        command, cwd=REPOSITORY, input=request, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    outcomes = {name: Outcome(**value) for name, value in json.loads(result.stdout.splitlines()[-1]).items()}
    return outcomes, result.stderr
