"""`python -m workloads.nexmark QUERY...`: NEXMark queries in streaming mode, compared with DuckDB row by row.

The events are identical to those of Apache Beam's generator, bit by bit. The expected answer is computed by DuckDB from
the events of a second generator, in numpy. Exit code 0: all outputs are right; 1: one is wrong; 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from rhino_core.errors import InvalidSettingError
from workloads.nexmark.jobs import job
from workloads.nexmark.queries import QUERIES
from workloads.nexmark.query import Query
from workloads.nexmark.settings import Generator
from workloads.nexmark.source import equal_sizes, varying_sizes
from workloads.trial.command import add_options, checked_faults, run_all

PROFILES = {"equal": equal_sizes, "varying": varying_sizes}


def main(argv: Sequence[str]) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    names = list(QUERIES) if "all" in arguments.query else arguments.query
    if unknown := [name for name in names if name not in QUERIES]:
        parser.error(f"query {unknown[0]}: choose from {', '.join(QUERIES)}, all")
    kinds = checked_faults(parser, arguments)
    sizes = PROFILES[arguments.profile](arguments.events, arguments.batches)
    try:
        jobs = [job(QUERIES[name], _generator(QUERIES[name], arguments), sizes) for name in names]
    except InvalidSettingError as error:
        parser.error(str(error))
    return run_all(jobs, kinds, arguments, "python -m workloads.nexmark")


def _generator(query: Query, arguments: argparse.Namespace) -> Generator:
    """Returns the query's generator with the changes from the command line."""
    names = ("rate", "hot_auctions", "hot_sellers", "hot_bidders", "padded")
    changed = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return dataclasses.replace(query.generator, **changed)


def _parser() -> argparse.ArgumentParser:
    about = "\n".join(f"  {query.name:5} {query.about}" for query in QUERIES.values())
    parser = argparse.ArgumentParser(
        prog="python -m workloads.nexmark",
        description=f"{__doc__}\nqueries:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("query", nargs="+", help="names as above, or all")
    parser.add_argument("--events", type=int, default=200_000, help="of all three streams together")
    parser.add_argument("--batches", type=int, default=20, help="micro-batches that they come in")
    parser.add_argument(
        "--profile", choices=PROFILES, default="equal", help="batches of equal size, or varying by a factor of 8"
    )
    parser.add_argument("--rate", type=int, help="events per second of event time (default: suits the query's windows)")
    for stream in ("auctions", "sellers", "bidders"):
        parser.add_argument(
            f"--hot-{stream}", type=int, metavar="N", help=f"one in N is not one of the hot {stream}: skew"
        )
    parser.add_argument("--padded", action="store_true", default=None, help="records of 206, 269 and 32 bytes")
    add_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
