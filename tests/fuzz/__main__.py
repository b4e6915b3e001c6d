"""`python -m tests.fuzz --minutes 10`: fuzzes every parser in turn. The exit code is 1 if something was found."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback
from collections import Counter

from tests.fuzz.fuzzer import memory_bytes, run
from tests.fuzz.targets import TARGETS

TIMES = 200  # examples of a target in a round
GROWTH_BYTES_MAX = 300 << 20  # after the first round, in which everything is imported
REPORT_S = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    logging.basicConfig(handlers=[logging.NullHandler()])  # refusals have lines, far too many to read
    end, number, done, found = time.monotonic() + options.minutes * 60, options.seed, Counter[str](), Counter[str]()
    first_bytes, reported = 0, time.monotonic()
    print(f"seed {options.seed}", flush=True)
    while time.monotonic() < end:
        for name in options.target or TARGETS:
            try:
                run(name, TIMES, number)
            except Exception:
                found[name] += 1
                print(f"--- {name}, seed {number}\n{traceback.format_exc()}", flush=True)
            done[name] += TIMES
        number += 1
        first_bytes = first_bytes or memory_bytes()
        if (grown := memory_bytes() - first_bytes) > GROWTH_BYTES_MAX:
            print(f"--- memory has grown by {grown >> 20} MiB", flush=True)
            return 1
        if time.monotonic() - reported > REPORT_S:
            reported = time.monotonic()
            print(_so_far(done, found), flush=True)
    print(f"{_so_far(done, found)}: {dict(found)}")
    print("examples of each target:", dict(done))
    return 1 if found else 0


def _so_far(done: Counter[str], found: Counter[str]) -> str:
    open_files = len(os.listdir("/proc/self/fd"))
    return (
        f"{sum(done.values())} examples, {sum(found.values())} findings, {memory_bytes() >> 20} MiB at most, "
        f"{open_files} open files"
    )


if __name__ == "__main__":
    sys.exit(main())
