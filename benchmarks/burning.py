"""Other load of a node, for benchmarks beside it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

BURN = "while True: sum(range(10000))"
PROCESSES = 2  # one for each core of a small machine


@contextlib.contextmanager
def burning(processes: int = PROCESSES) -> Iterator[None]:
    """Meanwhile, processes do nothing but use the processors."""
    started = [subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.DEVNULL) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
