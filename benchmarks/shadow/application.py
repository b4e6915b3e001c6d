"""Run by benchmarks.shadow in a process of its own: the code of the live query, as its shadow on a branch."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.applications import session
from benchmarks.shadow.live import written
from benchmarks.stateful import Load, stream
from rhino import shadow


def _run() -> None:
    state_bytes, live, branch, output, batches = sys.argv[1:]
    with session() as spark:
        rows = stream(spark, Load(int(state_bytes)))
        reader = written(Path(output))
        report = shadow(rows, Path(live), Path(branch), reader, output_mode="update", batches=int(batches))
        print("agrees" if report.agrees else f"differs: {report}", flush=True)


if __name__ == "__main__":
    _run()
