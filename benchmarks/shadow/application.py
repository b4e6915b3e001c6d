"""Run by benchmarks.shadow in a process of its own: branches the live query, and is its shadow with the same code."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.applications import session
from benchmarks.shadow.live import Made, written
from benchmarks.stateful import Load, stream
from rhino import branch, shadow


def _run() -> None:
    manager, state_bytes, live, target, output, batches = sys.argv[1:]
    with session() as spark:
        made = branch(manager, Path(live), Path(target))
        Made(made.batch, made.job).write(Path(target))
        rows = stream(spark, Load(int(state_bytes)))
        reader = written(Path(output))
        report = shadow(rows, Path(live), Path(target), reader, output_mode="update", batches=int(batches))
        print("agrees" if report.agrees else f"differs: {report}", flush=True)


if __name__ == "__main__":
    _run()
