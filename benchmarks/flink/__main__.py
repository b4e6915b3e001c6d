"""`python -m benchmarks.flink`: kill -9 of a worker, Rhino beside Apache Flink with the same amount of state.

Flink (PyPI `apache-flink-libraries`, or a distribution of 2.0 or newer) keeps it in RocksDB with incremental
checkpoints on a local path, one a second; three task managers with a gigabyte each, six subtasks, one task manager
killed right after a checkpoint. Unlike by default, it recovers from local copies if it can, restarts after 100 ms, and
has a heartbeat every 100 ms: with one every 10 s, restarts go on failing until two of them have failed. Rhino as in
`benchmarks.recovery`. Without Flink, this says so and ends with code 0.

"seen": Flink's job manager counts a task as failed; Spark's driver has dropped the executor. "running again": the last
subtask runs with its state restored; the last partition is loaded. "committed": the next checkpoint is complete; the
next batch is in the commit log. Two engines with two ways to commit: compare times that grow with the state.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.cells import Cells, Say, parser, place_of, settled
from benchmarks.command import main, show
from benchmarks.flink.distribution import HOW_TO, find_flink, version
from benchmarks.flink.loss import Recovery, kill_task_manager
from benchmarks.flink.summary import summarise, table
from benchmarks.recovery.loss import lose_and_recover
from benchmarks.stateful import Load

SUBJECTS = ("rhino", "flink")


def _measure(jars: Path, subject: str, load: Load, folder: Path, say: Say) -> list[Recovery]:
    if subject == "flink":
        return [kill_task_manager(jars, load, folder, say)]
    with settled(place_of(subject), load, folder, say) as run:
        lost = lose_and_recover(run, subject)
    return [Recovery(subject, load.state_bytes, 0, lost.detected, lost.loaded, lost.next_batch)]


def _describe(result: Recovery) -> str:
    return f"running again {result.running / 1000:.2f} s after the loss"


def _skip(arguments: argparse.Namespace) -> None:
    message = f"skipped: there is no Apache Flink here; {HOW_TO}"
    Console(stderr=True).print(message, highlight=False, soft_wrap=True, markup=False)
    if arguments.json:
        arguments.json.write_text(json.dumps({"flink": [{"outcome": message}]}) + "\n")


def _run() -> None:
    options = parser("benchmarks.flink", __doc__, SUBJECTS, SUBJECTS)
    options.add_argument(
        "--flink", type=Path, metavar="DIR", help="a Flink distribution (default: FLINK_HOME, or PyPI)"
    )
    arguments = options.parse_args()
    jars = find_flink(arguments.flink)
    if jars is None:
        _skip(arguments)
        return
    Console(stderr=True).print(f"Flink {version(jars)}", highlight=False)
    show(table(summarise(Cells(arguments, partial(_measure, jars), summarise, _describe).run())))


if __name__ == "__main__":
    sys.exit(main(_run))
