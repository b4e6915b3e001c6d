"""`python -m tests.simulation.witness --seeds 1000`: seeds of the journal on witnesses, until one fails.

`--seed 17` runs one seed and prints its trace.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.seeds import usable_processors
from tests.simulation.witness.seeds import failures, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.witness", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--jobs", type=int, default=usable_processors(), help="processes (%(default)s)")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        outcome = run(arguments.seed, traced=True)
        print("\n".join(outcome.trace))
        sys.exit(f"seed {arguments.seed}: {outcome.error}" if outcome.error is not None else 0)
    started = time.monotonic()
    for failure in failures(range(arguments.first, arguments.first + arguments.seeds), jobs=arguments.jobs):
        if failure is not None:
            sys.exit(f"seed {failure[0]}: {failure[1]}\nto see all of it: {parser.prog} --seed {failure[0]}")
    print(f"{arguments.seeds} seeds in {time.monotonic() - started:.1f} s: every invariant held")


if __name__ == "__main__":
    main()
