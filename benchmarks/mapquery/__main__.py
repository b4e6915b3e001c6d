"""`python -m benchmarks.mapquery`: the stateful map query, with the latency of every record.

"On-the-fly Reconfiguration" (BTW 2019) 6.3.1: numbers arrive at a fixed rate; every instance counts what it receives
and appends the count. Latency counts from a number's creation to the end of its batch. Exit code 1: a number is
missing, or has another count than it must.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.mapquery.counting import Load, job, latency
from benchmarks.streaming.command import add_options, checked_faults, run_all
from benchmarks.streaming.trial import Trial
from rhino.errors import InvalidSettingError


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mapquery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=2000, help="numbers per second")
    parser.add_argument("--seconds", type=int, default=40, help="for so long")
    parser.add_argument("--instances", type=int, default=8, help="of the map: virtual nodes")
    add_options(parser)
    arguments = parser.parse_args(argv)
    kinds = checked_faults(parser, arguments)
    try:
        load = Load(arguments.rate, arguments.seconds, arguments.instances)
    except InvalidSettingError as error:
        parser.error(str(error))
    return run_all([job(load)], kinds, arguments, "python -m benchmarks.mapquery", _latency)


def _latency(trial: Trial, output: Path) -> dict[str, Any]:
    return {"latency": asdict(latency(output, trial.timeline))}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
