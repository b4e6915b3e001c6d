"""`python -m benchmarks.placement`: Prepare after the loss of the writer, state-centric beside block-centric.

The "state fetching" column of the paper's Table 1, for Rhino and RhinoDFS (5.2.1): four sidecars, two copies of every
file, the writer is killed, and the survivor that has most of the state takes it over. Compare within a run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.command import folder, main
from benchmarks.replication.sidecars import JOB, Chain, attached, chain, stored_bytes
from benchmarks.replication.source import Source, make_source
from rhino_core.ids import Placement, StoreId, Version
from workloads.machine import machine

WORKERS = 4
STORE = StoreId(JOB, 0, 0, "default")


@dataclass(frozen=True, slots=True)
class TakeOver:
    """One Prepare; times in milliseconds inside the sidecar. `here_bytes`: of the state, before the call."""

    placement: str
    state_bytes: int
    here_bytes: int
    fetched_bytes: int
    source: str
    prepare_ms: float


def _run() -> None:
    arguments = _arguments()
    console = Console(stderr=True)
    results: list[TakeOver] = []
    with tempfile.TemporaryDirectory(prefix="rhino-placement-", dir=arguments.dir) as temporary:
        source = make_source(Path(temporary, "source"), arguments.bytes, arguments.files)
        for turn in range(arguments.rounds):
            for placement in Placement:
                console.print(f"{placement.value}, round {turn + 1} of {arguments.rounds}")
                with chain(Path(temporary, f"{placement.value}-{turn}"), WORKERS) as members:
                    results.append(asyncio.run(_measure(members, source, placement)))
    Console().print(_table(results))
    if arguments.json:
        command = " ".join(["python -m benchmarks.placement", *sys.argv[1:]])
        report = {"command": command, "machine": machine(), "rounds": [asdict(result) for result in results]}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement", description=__doc__)
    parser.add_argument("--bytes", type=int, default=1_000_000_000, help="of all files together")
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3, help="medians are shown")
    parser.add_argument("--dir", type=folder, help="where to work; needs about nine times --bytes")
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


async def _measure(members: Chain, source: Source, placement: Placement) -> TakeOver:
    """Blocks are spread over all other workers; state-centric copies are whole on one of them."""
    replicas = WORKERS - 1 if placement is Placement.BLOCK else 1
    async with attached(members.socket, replicas, min_copies=2, placement=placement) as client:
        version = await client.snapshot(STORE, source.paths)
    members.sidecars[0].kill()
    survivors = [members.socket_of(number) for number in range(1, WORKERS)]
    here = {socket: await stored_bytes(socket) for socket in survivors}
    target = max(survivors, key=lambda socket: here[socket])
    return await _take_over(target, here[target], source, placement, version)


async def _take_over(target: Path, here: int, source: Source, placement: Placement, version: Version) -> TakeOver:
    async with attached(target, 1, min_copies=1) as client:
        reply = await client.prepare(STORE, version)
    return TakeOver(
        placement=placement.value,
        state_bytes=source.total_bytes,
        here_bytes=here,
        fetched_bytes=reply.fetched_bytes,
        source=reply.source,
        prepare_ms=reply.duration_ms,
    )


def _table(results: list[TakeOver]) -> Table:
    table = Table("placement", "state MB", "here MB", "fetched MB", "source", "Prepare ms (median)")
    for placement in Placement:
        mine = [result for result in results if result.placement == placement.value]
        table.add_row(
            placement.value,
            *(f"{sum(bytes_) / len(mine) / 1e6:.1f}" for bytes_ in zip(*map(_sizes, mine), strict=True)),
            "/".join(sorted({result.source for result in mine})),
            f"{statistics.median(result.prepare_ms for result in mine):.1f}",
        )
    return table


def _sizes(result: TakeOver) -> tuple[int, int, int]:
    return result.state_bytes, result.here_bytes, result.fetched_bytes


if __name__ == "__main__":
    sys.exit(main(_run))
