"""Run by benchmarks.restart in a process of its own: other code asks for the query, and runs it until replaced."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.applications import session
from benchmarks.restart.changes import begin, outcome_of
from benchmarks.stateful import Load


def _run() -> None:
    state_bytes, checkpoint, code = sys.argv[1:]
    with session() as spark:
        print(outcome_of(begin(spark, Load(int(state_bytes)), Path(checkpoint), code)), flush=True)


if __name__ == "__main__":
    _run()
