"""`python -m benchmarks.manager`: the cost of one manager process with many sidecars, groups and queries.

The manager is a real one, with certificates, a journal and metrics. The sidecars and drivers are simulated by two other
processes, with the real protocol: registration, heartbeats, news, batches and the manager's questions about them. A few
sidecars without groups are in the second process. They measure the time of heartbeats, so this process does little
else. Each query has 1000 groups on 20 workers. After the steady time the manager is killed and started again on its
journal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from benchmarks.command import folder, main, show
from benchmarks.manager.cluster import Cluster
from benchmarks.manager.figures import Figures, measure
from benchmarks.manager.prepared import prepare
from benchmarks.manager.shape import OPERATORS, Shape
from rhino_core.security.sources import new_cluster_key
from workloads.machine import machine

BARS = {"cpu_share": 0.5, "heartbeat_p99_ms": 50.0, "restart_s": 10.0}  # at 1000 sidecars and 100 000 groups


def _run() -> None:
    arguments = _arguments()
    facts, rows = machine(), list[Figures]()
    for batch_s in arguments.batch_s:
        with _cluster(arguments, batch_s) as cluster:
            rows.append(measure(cluster, arguments.warm_s, arguments.seconds, arguments.profile))
    show(_table(rows))
    if arguments.json:
        command = " ".join(["python -m benchmarks.manager", *sys.argv[1:]])
        report = {"command": command, "machine": facts, "managers": [asdict(row) for row in rows], "bars": BARS}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.manager", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1000, help="sidecars, with those that measure")
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--groups-of-a-query", type=int, default=1000)
    parser.add_argument("--probes", type=int, default=20, help="of the sidecars: those that measure")
    parser.add_argument(
        "--batch-s", type=_seconds, default=(60.0,), help="between two batches of a query; 0: none; several: 0,60,10"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of the steady time")
    parser.add_argument("--warm-s", type=float, default=15.0, help="before it")
    parser.add_argument("--dir", type=folder, help="for the journal; default: the system's temporary folder")
    parser.add_argument("--keep-logs", type=Path, help="the manager's log is copied there")
    parser.add_argument(
        "--profile", type=Path, help="the manager runs under cProfile, which writes there; it is slower"
    )
    parser.add_argument("--json", type=Path, help="write all results there")
    arguments = parser.parse_args()
    if arguments.groups_of_a_query % len(OPERATORS) or arguments.groups % arguments.groups_of_a_query:
        parser.error("--groups must be a multiple of --groups-of-a-query, and that an even number")
    if not 0 < arguments.probes < arguments.workers - 1:
        parser.error("--probes: at least one, and two other sidecars")
    return arguments


def _seconds(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


@contextlib.contextmanager
def _cluster(arguments: argparse.Namespace, batch_s: float) -> Iterator[Cluster]:
    listen, metrics, peers = _free_ports(3)
    shape = Shape(arguments.workers, arguments.groups, arguments.groups_of_a_query, arguments.probes, peers)
    with tempfile.TemporaryDirectory(prefix="rhino-manager-", dir=arguments.dir) as temporary:
        folder = Path(temporary)
        key = folder / "cluster.key"
        new_cluster_key(key)
        epoch = prepare(folder / "journal", shape)
        cluster = Cluster(folder, shape, epoch, key, (listen, metrics), batch_s)
        try:
            yield cluster
        finally:
            cluster.close()
            if arguments.keep_logs:
                arguments.keep_logs.write_text((folder / "rhino-manager.log").read_text())


def _free_ports(count: int) -> Sequence[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(contextlib.closing(socket.create_server(("0.0.0.0", 0)))) for _ in range(count)]
        return [one.getsockname()[1] for one in found]


def _table(rows: list[Figures]) -> Table:
    table = Table("", *(f"{row.batches_a_minute:.0f} batches a minute" for row in rows))
    for name in Figures.__slots__:
        table.add_row(name.replace("_", " "), *(_shown(getattr(row, name)) for row in rows))
    first = rows[0]
    size = f"{first.workers} sidecars and {first.groups} groups"
    table.caption = f"{size}; to reach with 1000 and 100 000: {', '.join(f'{n} <= {bar}' for n, bar in BARS.items())}"
    return table


def _shown(value: float | int | bool) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main(_run))
