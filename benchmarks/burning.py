"""Other load of a node, for benchmarks beside it."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

BURN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100000))"
PROCESSES = 2  # one for each core of a small machine


def add_busy(parser: argparse.ArgumentParser) -> None:
    """`--busy [N]`: the number of processes, for `burning`."""
    help_text = f"beside N burning processes; {PROCESSES} if N is left out"
    parser.add_argument("--busy", type=int, nargs="?", const=PROCESSES, default=0, metavar="N", help=help_text)


@contextlib.contextmanager
def burning(processes: int = PROCESSES) -> Iterator[None]:
    """Meanwhile, processes do nothing but use the processors. They end with this one.

    Each has a session of its own: Linux may share the processors out among sessions (autogroup), and all of them
    together would then get no more than one process of a cluster.
    """
    command = [sys.executable, "-c", BURN, str(os.getpid())]
    started = [subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
