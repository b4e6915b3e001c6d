"""`python -m tests.simulation --seeds 1000`: runs seeds until one fails; prints it with its trace and exits 1.

`--seed 17 --trace` runs one seed and prints every event and effect of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from rhino.errors import RhinoError
from tests.simulation.cluster import Cluster

SHOWN = 150  # lines of a failing seed's trace, unless all are asked for


@dataclass(frozen=True)
class Outcome:
    """`error`: the invariant that did not hold, or what a machine raised; None when all went well."""

    error: Exception | None
    trace: list[str]


def run(seed: int, *, factor: int = 1, verbose: bool = False) -> Outcome:
    cluster = Cluster(seed, workers=factor + 2, factor=factor)
    cluster.world.verbose = verbose
    try:
        cluster.run()
    except (AssertionError, RhinoError, LookupError) as error:
        return Outcome(error, cluster.world.trace)
    return Outcome(None, cluster.world.trace)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--factor", type=int, default=1, help="replication factor; workers are two more")
    parser.add_argument("--trace", action="store_true", help="print the whole trace of the last seed, with all events")
    arguments = parser.parse_args()
    started = time.monotonic()
    first, count = (arguments.first, arguments.seeds) if arguments.seed is None else (arguments.seed, 1)
    for seed in range(first, first + count):
        outcome = run(seed, factor=arguments.factor, verbose=arguments.trace and count == 1)
        if outcome.error is not None:
            trace = run(seed, factor=arguments.factor, verbose=True).trace
            print("\n".join(trace if arguments.trace else trace[-SHOWN:]))
            sys.exit(f"seed {seed} (factor {arguments.factor}): {type(outcome.error).__name__}: {outcome.error}")
    if arguments.trace:
        print("\n".join(outcome.trace))
    print(f"{count} seeds in {time.monotonic() - started:.1f} s: every invariant held")


if __name__ == "__main__":
    main()
