"""A short run of chaos. `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import Chaos

MINUTES = 4.0


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.timeout(1500)
def test_output_is_exact_under_random_faults(tmp_path: Path) -> None:
    report = Chaos(tmp_path, seed=7, say=print).run(MINUTES)
    assert sum(report.faults.values()) >= 20
    assert report.equal, report.to_json()
    assert all(verdict.rows > 500 for verdict in report.verdicts.values())
