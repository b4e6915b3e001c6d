"""`python -m workloads.keycount`: counts random 64-bit keys, for different numbers of keys and virtual nodes.

Megaphone (PVLDB 2019) 5.2: all keys are loaded before the updates begin. "key" counts dense keys, "hash" scattered
ones. Each run's final counts are compared with numpy's and DuckDB's. Exit code 1: a result is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rhino_core.errors import InvalidSettingError
from workloads.keycount.counts import Load, job
from workloads.trial.command import add_options, checked_faults, run_all


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.keycount", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=("key", "hash"), default=["key", "hash"])
    parser.add_argument("--virtual-nodes", nargs="+", type=int, default=[4, 16, 64], help="one run for each")
    parser.add_argument("--domain", type=int, default=100_000, help="distinct keys, loaded first")
    parser.add_argument("--updates", type=int, default=200_000, help="events after that")
    parser.add_argument("--batches", type=int, default=20, help="micro-batches of the updates")
    add_options(parser)
    arguments = parser.parse_args(argv)
    kinds = checked_faults(parser, arguments)
    try:
        loads = [Load(arguments.domain, arguments.updates, arguments.batches, n) for n in arguments.virtual_nodes]
    except InvalidSettingError as error:
        parser.error(str(error))
    # The first query of a session loads and compiles classes. A warm-up job keeps that out of the others' durations.
    jobs = [job("key", Load(1000, 1000, 4, 4), "warm-up")]
    jobs += [job(kind, load) for kind in arguments.kinds for load in loads]
    return run_all(jobs, kinds, arguments, "python -m workloads.keycount")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
