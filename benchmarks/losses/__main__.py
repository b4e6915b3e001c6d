"""`python -m benchmarks.losses`: the time between two batches of a query of one batch a second, at each loss.

The scene is that of examples.survive. A figure is the longest time between two batches from the loss until the third
batch after it. The second table has the time between all batches of the run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.burning import add_busy, burning
from benchmarks.command import folder, main, show
from examples.survive.losses import KINDS
from examples.survive.scene import Scene, Story
from rhino.testing.query_watch import RunError
from rhino_core.errors import RhinoError
from workloads.machine import machine


def rows_of(story: Story) -> list[dict[str, Any]]:
    """A row for each kind of loss. Raises RunError for a wrong output."""
    if not story.verdict.equal or not story.verdict.rows:
        raise RunError(f"the output is wrong: {story.verdict}")
    found: dict[str, list[float]] = {}
    for loss in story.happened:
        found.setdefault(loss.name, []).append(loss.longest_s)
    return [
        {
            "loss": name,
            "times": len(s),
            "median_s": round(statistics.median(s), 2),
            "longest_s": round(max(s), 2),
        }
        for name, s in found.items()
    ]


def summary_of(story: Story) -> dict[str, Any]:
    gaps = sorted(after - before for before, after in pairwise(story.logged))
    return {
        "batches": len(story.logged),
        "rows": story.verdict.rows,
        "median_s": round(statistics.median(gaps), 2),
        "p99_s": round(gaps[len(gaps) * 99 // 100], 2),
    }


def _run() -> None:
    arguments = _arguments()
    console = Console(stderr=True)
    work = Path(tempfile.mkdtemp(prefix="rhino-losses-", dir=arguments.dir)).resolve()
    try:
        beside = burning(arguments.busy)
        scene = Scene(
            work, arguments.rounds, arguments.pause_s, console.print, arguments.only, beside, cold=arguments.cold
        )
        story = scene.run()
        rows = rows_of(story)
    except RhinoError as error:
        raise RunError(f"{error}; data and logs are in {work}") from error
    shutil.rmtree(work)
    report: dict[str, Any] = {"command": " ".join(["python -m benchmarks.losses", *sys.argv[1:]]), "machine": machine()}
    report |= {"losses": rows, "batches": [summary_of(story)]}
    for title in ("losses", "batches"):
        table = Table(*report[title][0], title=title)
        for row in report[title]:
            table.add_row(*map(str, row.values()))
        show(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.losses", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each of them is lost")
    parser.add_argument("--pause-s", type=float, default=10.0, help="seconds before a loss, and before the return")
    parser.add_argument("--only", action="append", default=[], choices=KINDS, help="only this loss; repeatable")
    parser.add_argument("--cold", action="store_true", help="the standby driver has no executors while it waits")
    add_busy(parser)
    parser.add_argument("--dir", type=folder, help="where to work")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(_run))
