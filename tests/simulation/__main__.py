"""`python -m tests.simulation --seeds 1000`: runs seeds on all processors until one fails; prints it and exits 1.

`--seed 17 --trace` runs one seed and prints every event and effect of it.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.seeds import failures, run, usable_processors

SHOWN = 150  # lines of a failing seed's trace, unless all are asked for
PROGRESS_S = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--factor", type=int, default=1, help="replication factor; workers are two more")
    parser.add_argument("--jobs", type=int, default=usable_processors(), help="processes (%(default)s)")
    parser.add_argument("--trace", action="store_true", help="print the whole trace of the last seed, with all events")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        _one(arguments.seed, arguments.factor, whole_trace=arguments.trace)
    else:
        _many(range(arguments.first, arguments.first + arguments.seeds), arguments.factor, arguments.jobs)


def _one(seed: int, factor: int, *, whole_trace: bool) -> None:
    outcome = run(seed, factor=factor, verbose=True)
    if whole_trace or outcome.error is not None:
        print("\n".join(outcome.trace if whole_trace else outcome.trace[-SHOWN:]))
    if outcome.error is not None:
        sys.exit(f"seed {seed} (factor {factor}): {type(outcome.error).__name__}: {outcome.error}")
    print(f"seed {seed} (factor {factor}): every invariant held")


def _many(seeds: range, factor: int, jobs: int) -> None:
    started = printed = time.monotonic()
    for done, failure in enumerate(failures(seeds, factor=factor, jobs=jobs), 1):
        if failure is not None:
            print("\n".join(run(failure.seed, factor=factor, verbose=True).trace[-SHOWN:]))
            sys.exit(f"{failure.text}\nto see all of it: {failure.replay} --trace")
        if time.monotonic() - printed > PROGRESS_S:
            printed = time.monotonic()
            print(f"{done} of {len(seeds)} seeds in {printed - started:.0f} s", flush=True)
    print(f"{len(seeds)} seeds (factor {factor}) in {time.monotonic() - started:.1f} s: every invariant held")


if __name__ == "__main__":
    main()
