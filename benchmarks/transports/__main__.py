"""`python -m benchmarks.transports`: what encryption costs push streams, by transport.

Each round starts a sender and a receiver for each transport. They send a file of `--bytes`, then small files one after
the other, alone and beside data files. All of it is done twice, the second time beside burning processes. Data files
yield to commits, as in a sidecar. Ratios are medians of the rounds' own ratios to plain TCP.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.burning import burning
from benchmarks.command import folder, main, show
from benchmarks.transports import certificates
from benchmarks.transports.pairs import Pair, Place
from benchmarks.transports.subjects import SUBJECTS, parse
from benchmarks.transports.summary import CPU_MAX, P99_MAX_MS, SPEED_MIN, Result, Row, summarise
from workloads.machine import machine

MIB = 1024 * 1024
PART_BYTES = 64 * MIB  # of the file that is sent over and over beside commits
LOADS = {"idle": 0, "busy": 2}  # burning processes


def _run() -> None:
    arguments = _arguments()
    console = Console(stderr=True)
    report: dict[str, object] = {"command": " ".join(["python -m benchmarks.transports", *sys.argv[1:]])}
    report |= {"machine": machine(), "bar": {"speed": SPEED_MIN, "cpu": CPU_MAX, "p99_more_ms": P99_MAX_MS}}
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="rhino-transports-", dir=arguments.dir) as temporary:
        folder = Path(temporary)
        make_source(folder, arguments.bytes)
        certificates.make(folder / "certificates")
        for turn in range(arguments.rounds):
            first = turn % len(arguments.subjects)
            for subject in arguments.subjects[first:] + arguments.subjects[:first]:
                console.print(f"{subject}, round {turn + 1} of {arguments.rounds}")
                results += _cell(subject, place(folder, f"{subject}-{turn}"), turn, arguments)
                _write(arguments.json, report | {"results": [asdict(r) for r in results], "median": summarise(results)})
    show(_table(summarise(results)))


def make_source(folder: Path, size_bytes: int) -> None:
    """`whole.sst` of this size, and `part.sst`: incompressible."""
    source = folder / "source"
    source.mkdir()
    for name, size in (("whole.sst", size_bytes), ("part.sst", min(PART_BYTES, size_bytes))):
        with (source / name).open("wb") as file:
            for offset in range(0, size, MIB):
                file.write(os.urandom(min(MIB, size - offset)))


def place(folder: Path, name: str) -> Place:
    return Place(folder / "certificates", folder / "source", folder / name)


def _cell(subject: str, where: Place, turn: int, arguments: argparse.Namespace) -> list[Result]:
    with Pair(subject, where, arguments.grpc) as pair:
        found = []
        for load in arguments.loads:
            pair.remove_received()
            with burning(LOADS[load]):
                pair.free_pages(arguments.bytes)
                found.append(_measured(pair, (subject, load, turn), arguments))
        return found


def _measured(pair: Pair, identity: tuple[str, str, int], arguments: argparse.Namespace) -> Result:
    bulk = pair.bulk()
    pair.remove_received()
    alone = pair.commits(arguments.commits)
    beside, beside_mb_per_s = pair.beside(arguments.commits)
    gb = arguments.bytes / 1e9
    return Result(
        *identity,
        mb_per_s=arguments.bytes / 1e6 / bulk.wall_s,
        sender_cpu_s_per_gb=bulk.sender_cpu_s / gb,
        receiver_cpu_s_per_gb=bulk.receiver_cpu_s / gb,
        idle_p50_ms=float(np.percentile(alone, 50)),
        idle_p99_ms=float(np.percentile(alone, 99)),
        beside_p50_ms=float(np.percentile(beside, 50)),
        beside_p99_ms=float(np.percentile(beside, 99)),
        beside_mb_per_s=beside_mb_per_s,
    )


def _write(path: Path | None, report: dict[str, object]) -> None:
    """After each cell: what was measured stays when a later one fails."""
    if path is not None:
        path.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transports", description=__doc__)
    parser.add_argument("--bytes", type=int, default=512 * MIB, help="of the file to send")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved; medians are shown")
    parser.add_argument("--commits", type=int, default=200, help="for each latency")
    parser.add_argument("--subjects", nargs="+", type=_subject, default=list(SUBJECTS), help="such as records@256")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS), help="default: both")
    parser.add_argument("--grpc", nargs="*", default=[], metavar="OPTION=NUMBER", help="options of channel and server")
    parser.add_argument("--dir", type=folder, help="where to work; needs about four times --bytes")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


def _subject(text: str) -> str:
    return parse(text).name


def _table(rows: Sequence[Row]) -> Table:
    names = {"speed_ratio": "speed", "cpu_ratio": "CPU", "idle_p99_more_ms": "p99 +", "beside_p99_more_ms": "beside +"}
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*(names.get(name, name.replace("_", " ")) for name in columns))
    for row in rows:
        table.add_row(*(_text(row.get(name, "")) for name in columns))
    return table


def _text(value: float | str | bool | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main(_run))
