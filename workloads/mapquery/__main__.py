"""`python -m workloads.mapquery`: the stateful map query, with the latency of every record.

"On-the-fly Reconfiguration" (BTW 2019) 6.3.1: numbers arrive at a fixed rate. Each instance counts the numbers that it
receives, and appends the count. Latency is measured from a number's creation to the end of its batch. Exit code 1: a
number is missing or has a wrong count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rhino_core.errors import InvalidSettingError
from workloads.mapquery.counting import Load, job, latency
from workloads.trial.command import add_options, checked_faults, run_all
from workloads.trial.whole import Trial


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.mapquery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
    return run_all([job(load)], kinds, arguments, "python -m workloads.mapquery", _latency)


def _latency(trial: Trial, output: Path) -> dict[str, Any]:
    return {"latency": asdict(latency(output, trial.timeline))}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
