"""`python -m benchmarks.keycount`: counts of random 64-bit keys, by number of keys and of virtual nodes.

Megaphone (PVLDB 2019) 5.2: every key is there before the updates begin; "key" counts dense keys, "hash" scattered ones.
Each run's final counts are compared with numpy's and DuckDB's. Exit code 1: one is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.keycount.counts import Load, job
from benchmarks.streaming.command import add_options, checked_faults, run_all
from rhino.errors import InvalidSettingError


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.keycount", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
    # The first query of a session loads classes and compiles: none of those that are compared.
    jobs = [job("key", Load(1000, 1000, 4, 4), "warm-up")]
    jobs += [job(kind, load) for kind in arguments.kinds for load in loads]
    return run_all(jobs, kinds, arguments, "python -m benchmarks.keycount")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
