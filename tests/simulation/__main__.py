"""`python -m tests.simulation --seeds 1000`: runs seeds until one fails; prints it with its trace and exits 1."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.cluster import Cluster


def failure(seed: int, *, factor: int = 1) -> tuple[AssertionError, list[str]] | None:
    """What a seed finds, with its trace; None when every invariant held."""
    cluster = Cluster(seed, workers=factor + 2, factor=factor)
    try:
        cluster.run()
    except AssertionError as error:
        return error, cluster.world.trace
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--factor", type=int, default=1, help="replication factor; workers are two more")
    arguments = parser.parse_args()
    started = time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        found = failure(seed, factor=arguments.factor)
        if found is not None:
            error, trace = found
            print("\n".join(trace[-120:]))
            sys.exit(f"seed {seed}: {type(error).__name__}: {error}")
    print(f"{arguments.seeds} seeds in {time.monotonic() - started:.1f} s: every invariant held")


if __name__ == "__main__":
    main()
