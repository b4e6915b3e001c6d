"""The benchmark of correlated copies runs and reports; what the paper says of its first job holds."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.correlation.adapting import Cluster, Outcome, Way, correlated, even
from benchmarks.correlation.jobs import WINDOWS, airline

ROOT = Path(__file__).resolve().parents[2]


def test_all_copies_of_the_synthetic_job_are_usable_and_not_all_of_even_ones(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--jobs", "synthetic", "--seeds", "8", "--json", str(report)]
    command = [sys.executable, "-m", "benchmarks.correlation", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    rows = {(row["copies"], row["moved"]): row for row in json.loads(report.read_text())["copies"]}
    assert rows["correlated", "by load"]["usable_first"] == 1
    assert 0.3 <= rows["even", "by load"]["usable_first"] <= 0.8


def outcome(way: Way) -> Outcome:
    """Of the larger airline job on made-up days: a busy noon, more so from day to day."""
    rate = [1.2 - abs(12 - window % 24) / 12 for window in range(WINDOWS)]
    found = Outcome()
    for seed in range(4):
        job = airline(48, rate, random.Random(seed))
        partners = [[other for other in range(job.workers) if other != worker] for worker in range(job.workers)]
        found.add(Cluster(job, partners, way(job, partners, random.Random(seed))).run(again=way is correlated))
    return found


def test_correlated_copies_assist_more_moves_and_twice_as_many_are_usable() -> None:
    mine, others = outcome(correlated), outcome(even)
    assert others.moves > 10
    assert mine.assisted / mine.moves >= 1.4 * others.assisted / others.moves
    assert mine.usable / mine.offered >= 2 * others.usable / others.offered


@pytest.mark.parametrize("way", [even, correlated])
def test_a_copy_is_never_with_its_virtual_node(way: Way) -> None:
    job = airline(16, [1.0 + window % 3 / 10 for window in range(WINDOWS)], random.Random(1))
    partners = [[other for other in range(job.workers) if other != worker] for worker in range(job.workers)]
    cluster = Cluster(job, partners, way(job, partners, random.Random(1)))
    cluster.run(again=True)
    assert all(owner not in copies for owner, copies in zip(cluster.owners, cluster.copies, strict=True))
