"""`python -m benchmarks.replication`: bulk throughput and commit latency of real sidecars beside their peers.

Throughput counts from the first file until every member holds everything, processor time counts all processes of a
subject. Compare ratios within a run; absolute figures depend on the machine. Of commits, `cpu_us_per_commit` (r = 2,
one after the other) and `cpu_us_per_commit_at_rate` (r = 1) are the processor time of client, sidecars and manager
together: other work of the machine changes them far less than it changes latencies.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.command import folder, main
from benchmarks.replication import commits, peers, throughput
from benchmarks.replication.source import make_source
from benchmarks.replication.throughput import Result
from rhino_core.settings import CHUNK_BYTES
from worker_runtime.sidecar import keep_freed_memory
from workloads.machine import machine

PARTS = ("throughput", "commits")


def _run() -> None:
    arguments = _arguments()
    console = Console(stderr=True)
    keep_freed_memory()  # as sidecars do: this process is the sending end of the bare stream
    report: dict[str, object] = {"command": " ".join(["python -m benchmarks.replication", *sys.argv[1:]])}
    report["machine"] = machine()
    if not peers.rsync_available():
        console.print("rsync is not installed: its column is left out (Debian package rsync)")
    with tempfile.TemporaryDirectory(prefix="rhino-replication-", dir=arguments.dir) as temporary:
        folder = Path(temporary)
        source = make_source(folder / "source", arguments.bytes, arguments.files)
        if "throughput" in arguments.parts:
            results: list[Result] = []
            for turn in range(arguments.rounds):
                console.print(f"throughput, round {turn + 1} of {arguments.rounds}")
                results += throughput.compare(source, folder, (1, 2), CHUNK_BYTES, turn)
            rows = _summary(results)
            report["throughput"] = {"rounds": [asdict(result) for result in results], "median": rows}
            Console().print(_table(rows))
            _write(arguments.json, report)
        if "commits" in arguments.parts:
            console.print("commits")
            measured = commits.measure(source, folder / "commits", arguments.commits)
            report["commits"] = asdict(measured)
            Console().print_json(data=asdict(measured))
            _write(arguments.json, report)


def _write(path: Path | None, report: dict[str, object]) -> None:
    """After each part: its results stay when a later one fails."""
    if path is not None:
        path.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replication", description=__doc__)
    parser.add_argument("--bytes", type=int, default=2_000_000_000, help="of all files together")
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3, help="of throughput; medians are shown")
    parser.add_argument("--commits", type=int, default=1000, help="for each latency")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--dir", type=folder, help="where to work; needs about four times --bytes")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


def _summary(results: list[Result]) -> list[dict[str, float | str | int | None]]:
    """Medians per subject and hops; ratios are medians of the rounds' own ratios."""
    rows: list[dict[str, float | str | int | None]] = []
    for subject, hops in sorted({(result.subject, result.hops) for result in results}, key=_place):
        mine = [result for result in results if (result.subject, result.hops) == (subject, hops)]
        rhino = [result for result in results if (result.subject, result.hops) == ("rhino", hops)]
        peaks = [result.peak_resident_mb for result in mine if result.peak_resident_mb is not None]
        rows.append(
            {
                "subject": subject,
                "hops": hops,
                "mb_per_s": statistics.median(result.mb_per_s for result in mine),
                "cpu_s_per_gb_hop": statistics.median(result.cpu_s_per_gb_hop for result in mine),
                "rhino_speed_ratio": _ratio([r.mb_per_s for r in rhino], [r.mb_per_s for r in mine]),
                "rhino_cpu_ratio": _ratio([r.cpu_s_per_gb_hop for r in rhino], [r.cpu_s_per_gb_hop for r in mine]),
                "peak_resident_mb": max(peaks, default=None),
            }
        )
    return rows


def _place(row: tuple[str, int]) -> tuple[int, int]:
    subject, hops = row
    return hops, throughput.SUBJECTS.index(subject)


def _ratio(mine: list[float], others: list[float]) -> float | None:
    """Median of the rounds' ratios; None when there was too little to measure."""
    return statistics.median(a / b for a, b in zip(mine, others, strict=True)) if all(others) else None


def _table(rows: list[dict[str, float | str | int | None]]) -> Table:
    table = Table("subject", "hops", "MB/s", "CPU s/GB/hop", "Rhino's speed", "Rhino's CPU", "peak RSS MB")
    for row in rows:
        values = list(row.values())
        table.add_row(
            *(f"{value:.2f}" if isinstance(value, float) else "" if value is None else str(value) for value in values)
        )
    return table


if __name__ == "__main__":
    sys.exit(main(_run))
