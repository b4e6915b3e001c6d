"""`python -m benchmarks.allocation`: what each measure of worker_runtime/storage/allocation saves, and kept buffers.

Every part runs with and without its measure, one after the other in each round. Figures are medians of processor time.
Use a folder on the file system that workers use, ext4 above all. A measure that saves nothing there can go.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.allocation import measures
from benchmarks.command import folder, main, show
from workloads.machine import machine


@dataclass(frozen=True, slots=True)
class Part:
    """`count`: files, or buffers, per round with `--scale 1`."""

    measure: Callable[..., float]
    count: int
    unit: str
    saves: str


PARTS = {
    "create": Part(measures.create_files, 4000, "us per file", "preallocated files: time of the waiting thread"),
    "spread": Part(measures.spread_folders, 4000, "us per file", "folders far apart: time of all threads"),
    "reserve": Part(measures.reserve_space, 8, "ms per 64 MiB", "space reserved before the bytes are written"),
    "memory": Part(measures.keep_memory, 4000, "us per MiB", "freed buffers kept (worker_runtime/push/allocator.py)"),
}


def _run() -> None:
    arguments = _arguments()
    console = Console(stderr=True)
    results: dict[str, dict[str, list[float]]] = {name: {"with": [], "without": []} for name in arguments.parts}
    for turn in range(arguments.rounds):
        for name in arguments.parts:
            console.print(f"{name}, round {turn + 1} of {arguments.rounds}")
            part, order = PARTS[name], (True, False) if turn % 2 else (False, True)
            for on in order:
                with tempfile.TemporaryDirectory(prefix="rhino-allocation-", dir=arguments.dir) as folder:
                    count = max(1, round(part.count * arguments.scale))
                    results[name]["with" if on else "without"].append(part.measure(Path(folder), count, on=on))
    show(_table(results))
    if arguments.json:
        command = " ".join(["python -m benchmarks.allocation", *sys.argv[1:]])
        report = {"command": command, "machine": machine(), "rounds": results, "median": _medians(results)}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allocation", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of files and buffers per round")
    parser.add_argument("--dir", type=folder, help="where to work: a folder on the disk to measure")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


def _medians(results: Mapping[str, Mapping[str, Sequence[float]]]) -> list[dict[str, str | float]]:
    return [
        {
            "part": name,
            "unit": PARTS[name].unit,
            "without": statistics.median(rounds["without"]),
            "with": statistics.median(rounds["with"]),
        }
        for name, rounds in results.items()
    ]


def _table(results: dict[str, dict[str, list[float]]]) -> Table:
    table = Table("part", "what it saves", "without", "with", "unit", "saved")
    for name, rounds in results.items():
        without, with_it = statistics.median(rounds["without"]), statistics.median(rounds["with"])
        saved = f"{1 - with_it / without:.0%}" if without else "-"
        table.add_row(name, PARTS[name].saves, f"{without:.1f}", f"{with_it:.1f}", PARTS[name].unit, saved)
    return table


if __name__ == "__main__":
    sys.exit(main(_run))
