"""`python -m examples.survive`: every kind of process is lost while a query runs, and its output stays exact.

A worker, the leading manager and the driver are killed with kill -9, a worker is decommissioned, and a node falls
silent. Each comes back after a while. Three sidecars keep the journal of two managers, and a standby driver waits.
DuckDB checks each row of each batch.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from examples.survive.losses import KINDS
from examples.survive.picture import draw
from examples.survive.scene import Scene
from rhino_core.errors import RhinoError


def main(argv: Sequence[str]) -> int:
    """Returns exit code 0 if the output is exact, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.survive", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each of them is lost")
    parser.add_argument("--pause-s", type=float, default=10.0, help="seconds before a loss, and before the return")
    parser.add_argument("--only", action="append", default=[], choices=KINDS, help="only this loss; repeatable")
    parser.add_argument("--out", type=Path, default=Path("build/survive"), help="folder of survive.png, data and logs")
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    out = options.out.resolve()
    work = out / "rhino-survive"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    picture = out / "survive.png"
    say = partial(console.print, highlight=False, soft_wrap=True)
    try:
        story = Scene(work, options.rounds, options.pause_s, say, options.only).run()
    except RhinoError as error:
        say(f"FAILED {error}; data and logs are in {work}")
        return 1
    draw(picture, story)
    found = story.verdict
    print(f"{found.rows:,} rows, {found.missing} missing, {found.extra} extra; {picture}")
    if not found.equal or not found.rows:
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
