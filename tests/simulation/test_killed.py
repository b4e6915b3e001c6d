"""`python -m tests.simulation` leaves no process behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOBS = 2
BUSY_S = 2.0  # processor time after which a worker is in the middle of a seed
GONE_S = 10.0  # a worker asks for its next seeds much later
START_S = 120.0


def until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def stat(pid: int) -> list[str]:
    """The fields of the process behind its name, from its state on. Empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def children(pid: int) -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if stat(int(path.name))[1:2] == [str(pid)]]


def processor_s(pid: int) -> float:
    fields = stat(pid)
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def alive(pid: int) -> bool:
    return stat(pid)[:1] not in ([], ["Z"])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_a_killed_simulation_leaves_no_worker(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "100000", "--jobs", str(JOBS)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        try:
            until(
                lambda: sum(processor_s(pid) > BUSY_S for pid in children(process.pid)) == JOBS, START_S, "no workers"
            )
            started = children(process.pid)
        finally:
            process.send_signal(number)
    try:
        until(lambda: not any(map(alive, started)), GONE_S, f"workers of a process that {number.name} has ended go on")
    finally:
        for pid in filter(alive, started):
            os.kill(pid, signal.SIGKILL)
