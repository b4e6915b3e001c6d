"""`python -m benchmarks.planning`: CPU time, memory and proven quality of plans at the scale of large clusters.

First all virtual nodes are on no worker. Each later plan follows a tick: the time of some virtual nodes changes, and in
the last tick a worker is lost. Then 1 % of the workers are lost at once, many times over: how often is state lost that
has two secondary copies, if these are placed at random, and if few sets of workers hold them (`rhino manager
--scatter-width`)? All loads are drawn from log-normal distributions with the seed. CPU time is that of this process
alone, so other load matters little.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.command import main, show
from benchmarks.planning.losses import Losses, simulate
from rhino_core.ids import VirtualNode
from rhino_core.planning.goals import ORDER, Goals, Weight
from rhino_core.planning.model import Load, Model, Site
from rhino_core.planning.plan import Plan
from rhino_core.planning.propose import propose
from workloads.machine import machine

BANDS = dict.fromkeys(ORDER, 0.05) | {Weight.TIME: 0.01}
CHANGED = 0.001  # the part of all virtual nodes whose time changes in a tick
JOB = "planned"


@dataclass(frozen=True, slots=True)
class Figures:
    """One plan. `cpu_s`: for the plan alone. `events_cpu_s`: for the events before it, which change the model.

    `*_peak`: the highest load over the mean. `*_gap`: by how much the best possible peak may be lower, as a part of it;
    0 if one virtual node alone has the peak, as keys are not split. `copied_lower_bytes`: no plan within the bands
    copies fewer.
    """

    plan: str
    cpu_s: float
    events_cpu_s: float
    moves: int
    copied_bytes: float
    copied_lower_bytes: float
    time_peak: float
    rows_peak: float
    bytes_peak: float
    count_peak: float
    time_gap: float
    rows_gap: float
    bytes_gap: float
    count_gap: float
    max_rss_mib: float


def _run() -> None:
    arguments = _arguments()
    chance, rows = random.Random(arguments.seed), list[Figures]()
    began = time.process_time()
    model = _new(chance, arguments.workers, arguments.nodes)
    rows.append(_measured(model, "from scratch", time.process_time() - began))
    for number in range(1, arguments.ticks + 1):
        began = time.process_time()
        _change(chance, model)
        if lost := number == arguments.ticks:
            model.remove_worker(f"worker-{arguments.workers // 2}")
        rows.append(_measured(model, "lost worker" if lost else f"tick {number}", time.process_time() - began))
    losses = simulate(arguments.workers, arguments.nodes, arguments.rounds, arguments.seed)
    show(_table(rows))
    show(_losses_table(losses))
    if arguments.json:
        command = " ".join(["python -m benchmarks.planning", *sys.argv[1:]])
        report: dict[str, object] = {"command": command, "machine": machine(), "plans": [asdict(row) for row in rows]}
        report["losses"] = [asdict(row) for row in losses]
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planning", description=(__doc__ or "").replace("%", "%%")
    )
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=1_000_000, help="virtual nodes")
    parser.add_argument("--ticks", type=int, default=4, help="plans after the first one")
    parser.add_argument("--rounds", type=int, default=1000, help="of losing 1 %% of the workers at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args()


def _new(chance: random.Random, workers: int, nodes: int) -> Model:
    """Three zones. Rows and bytes of a virtual node have to do with its time, but not much."""
    model = Model()
    for number in range(workers):
        model.put_worker(Site(f"worker-{number}", f"host-{number}", f"zone-{number % 3}"))
    for number in range(nodes):
        time_s = chance.lognormvariate(0, 1)
        rows = time_s * chance.lognormvariate(0, 0.5) * 1e4
        load = Load(time_s, rows, time_s * chance.lognormvariate(0, 0.7) * 1e6)
        model.put_node(VirtualNode(JOB, 0, number), None, load)
    return model


def _change(chance: random.Random, model: Model) -> None:
    nodes = sorted(model.node_index.values())
    for index in chance.sample(nodes, max(int(len(nodes) * CHANGED), 1)):
        node = model.nodes[index]
        assert node is not None, "no virtual node is removed here"
        factor = chance.choice((0.5, 0.75, 1.25, 1.5))
        model.weigh(node, Load(time_s=model.columns[Weight.TIME][index] * factor))


def _measured(model: Model, name: str, events_cpu_s: float) -> Figures:
    """Makes a plan and carries it out in the model: the former workers keep copies, as does the next one."""
    began = time.process_time()
    plan = propose(model, Goals(BANDS))
    cpu_s = time.process_time() - began
    figures = _figures(plan, name, cpu_s, events_cpu_s)
    Console(stderr=True).print(f"{name}: {cpu_s:.2f} s CPU, gap {figures.time_gap:.2%}, {figures.max_rss_mib:.0f} MiB")
    workers = sorted(model.worker_index)
    place = {worker: position for position, worker in enumerate(workers)}
    for move in list(plan.moves):
        model.move(move.node, move.target)
        model.hold(move.node, (move.origin or workers[(place[move.target] + 1) % len(workers)],))
    return figures


def _figures(plan: Plan, name: str, cpu_s: float, events_cpu_s: float) -> Figures:
    bounds = plan.certificate.bounds
    peaks = {weight: bounds[weight].peak / bounds[weight].mean for weight in ORDER}
    return Figures(
        plan=name,
        cpu_s=cpu_s,
        events_cpu_s=events_cpu_s,
        moves=len(plan),
        copied_bytes=plan.certificate.copied_bytes,
        copied_lower_bytes=plan.certificate.copied_lower,
        time_peak=peaks[Weight.TIME],
        rows_peak=peaks[Weight.ROWS],
        bytes_peak=peaks[Weight.BYTES],
        count_peak=peaks[Weight.COUNT],
        time_gap=bounds[Weight.TIME].gap,
        rows_gap=bounds[Weight.ROWS].gap,
        bytes_gap=bounds[Weight.BYTES].gap,
        count_gap=bounds[Weight.COUNT].gap,
        max_rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _table(rows: list[Figures]) -> Table:
    table = Table(
        "plan", "CPU s", "events CPU s", "moves", "copied MB (bound)", "time", "rows", "bytes", "count", "gaps"
    )
    for row in rows:
        table.add_row(
            row.plan,
            f"{row.cpu_s:.2f}",
            f"{row.events_cpu_s:.2f}",
            f"{row.moves}",
            f"{row.copied_bytes / 1e6:.1f} ({row.copied_lower_bytes / 1e6:.1f})",
            *(f"{peak:.4f}" for peak in (row.time_peak, row.rows_peak, row.bytes_peak, row.count_peak)),
            ", ".join(f"{gap:.1%}" for gap in (row.time_gap, row.rows_gap, row.bytes_gap, row.count_gap)),
        )
    table.caption = f"peaks over the mean; at most {max(row.max_rss_mib for row in rows):.0f} MiB of memory"
    return table


def _losses_table(rows: list[Losses]) -> Table:
    table = Table("copies", "fatal sets", "rounds", "with a loss", "expected", "groups lost")
    for row in rows:
        table.add_row(
            row.placement,
            f"{row.fatal_sets}",
            f"{row.rounds}",
            f"{row.losing_rounds}",
            f"{row.expected:.3%}",
            f"{row.lost_groups}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main(_run))
