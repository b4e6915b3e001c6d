"""A seed gives the same run in every process, whatever the order in which Python's sets happen to be iterated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def trace(seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--trace"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300).stdout


@pytest.mark.parametrize("seed", [10, 23])  # several stores in a group
def test_a_seed_gives_the_same_run_in_every_process(seed: int) -> None:
    first = trace(seed, "0")
    assert "every invariant held" in first
    assert [trace(seed, other) == first for other in ("1", "2", "3")] == [True] * 3
