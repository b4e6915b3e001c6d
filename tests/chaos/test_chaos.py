"""A short run of chaos. `make chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import Chaos

MINUTES = 2.5
KINDS = 9  # of 11, or of 12 as root; some need a cluster that is whole at that moment


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_output_is_exact_under_random_faults(tmp_path: Path) -> None:
    report = Chaos(tmp_path, seed=7, say=print).run(MINUTES)
    assert sum(report.faults.values()) >= 14
    assert len(report.faults) >= KINDS
    assert report.equal, report.to_json()
    assert all(verdict.rows > 500 for verdict in report.verdicts.values())
