"""Other load of a node, for benchmarks beside it."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator

BURN = "while True: sum(range(10000))"
PROCESSES = 2  # one for each core of a small machine


def add_busy(parser: argparse.ArgumentParser) -> None:
    """`--busy [N]`: the number of processes, for `burning`."""
    help_text = f"beside N burning processes; {PROCESSES} if N is left out"
    parser.add_argument("--busy", type=int, nargs="?", const=PROCESSES, default=0, metavar="N", help=help_text)


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
