"""Real daemons at high speed: workers and queries come and go, crash and move; nothing of it may grow.

One manager and one sidecar run all the time; their figures are sampled. What rises after the first quarter of the time
is named, and the exit code is 1. A minute is about a day of a busy cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from pathlib import Path

from tests.soak import gauge
from tests.soak.run import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="of what happens; its order in time differs all the same")
    parser.add_argument("--folder", type=Path, default=None, help="empty folder for data and logs, kept")
    parser.add_argument("--json", type=Path, default=None, help="where to write the samples")
    parser.add_argument("--leak", choices=sorted(gauge.LEAKS), default="", help="plant this leak, which is to be found")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rhino-soak-")))
        folder.mkdir(parents=True, exist_ok=True)
        say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
        result = asyncio.run(
            soak(folder.resolve(), arguments.minutes * 60.0, seed=arguments.seed, leak=arguments.leak, say=say)
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"came": result.came, "samples": result.samples}))
    for what, times in sorted(result.came.items()):
        print(f"{times:8d} {what}")
    for growth in result.growing:
        print(f"grows: {growth}")
    print(
        f"{arguments.minutes:g} minutes: {f'{len(result.growing)} figures grow' if result.growing else 'nothing grows'}"
    )
    return 1 if result.growing else 0


if __name__ == "__main__":
    sys.exit(main())
