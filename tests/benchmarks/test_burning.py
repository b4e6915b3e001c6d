"""The load beside a benchmark competes with every process of a cluster, and ends with the benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.burning import burning
from tests.rhino.support.local_cluster import eventually

ENDS_WITHOUT_CLEANING_UP = """
import os
from benchmarks.burning import burning
with burning(1):
    print(open(f"/proc/self/task/{os.getpid()}/children").read(), flush=True)
    os._exit(0)
"""


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def burns(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_each_process_has_a_session_of_its_own() -> None:
    before = children()
    with burning(2):
        started = [pid for pid in children() if pid not in before]
        assert len(started) == 2
        assert [os.getsid(pid) for pid in started] == started
    assert children() == before


def test_they_end_with_a_benchmark_that_is_killed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_WITHOUT_CLEANING_UP], check=True, text=True, stdout=subprocess.PIPE, timeout=60
    )
    (pid,) = map(int, ended.stdout.split())
    eventually(lambda: not burns(pid), "the end of the process")
