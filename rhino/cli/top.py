"""`rhino top`: the running queries and the workers live, the busiest first, in 100 columns."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import sleep
from typing import NoReturn

from rich.console import Console
from rich.filesize import decimal

from rhino.cli.columns import Cell, Row, say_to, show_columns
from rhino.cli.output import console, say
from rhino.cli.status import LEVELS
from rhino.client.handover_client import HandoverClient
from rhino.client.overview import JobView, Overview, WorkerView, fetch_overview, query_names
from rhino.client.verdict import judge
from rhino_core.errors import RhinoError, UnavailableError
from rhino_model.loads import BatchLoad

KEPT = 20  # batches of each query
NAME_MAX = 24  # columns of a name; `rhino status` never cuts one
BARS = "▁▂▃▄▅▆▇█"
QUERIES = ("query", "batch", "last", "median", "newest batches", "rows", "lag", "away", "uneven")
WORKERS = ("worker", "state", "tasks", "owns", "copies", "stored", "free", "received/s", "beat")
AGAIN_S = 1.0


@dataclass(slots=True)
class Activity:
    """The newest batches of each query since the command began, and the bytes that workers had received before."""

    batches: dict[str, deque[BatchLoad]] = field(default_factory=dict)
    received: dict[str, tuple[float, int]] = field(default_factory=dict)

    def logged(self, load: BatchLoad) -> None:
        self.batches.setdefault(load.job, deque(maxlen=KEPT)).append(load)

    def rates(self, workers: Iterable[WorkerView], at: float) -> dict[str, float]:
        """Bytes per second since the former call, by worker. `at`: monotonic seconds."""
        before, self.received = self.received, {one.worker_id: (at, one.replicated_bytes) for one in workers}
        return {
            name: max(number - before[name][1], 0) / (at - before[name][0])
            for name, (_, number) in self.received.items()
            if name in before and at > before[name][0]
        }


def render(seen: Activity, overview: Overview, rates: Mapping[str, float], out: Console, rows_max: int) -> None:
    """Prints the verdict and two tables with `rows_max` rows each at most."""
    verdict = judge(overview)
    reason = verdict.reasons[0] if verdict.reasons else "all copies are there"
    say_to(out, Cell(verdict.level.value.upper(), LEVELS[verdict.level]), f": {reason}"[:88])
    names = query_names(overview.jobs)
    running = [job for job in overview.jobs if job.connected]
    running.sort(key=lambda job: -_seconds(seen.batches.get(job.job, ())))
    _table(out, QUERIES, [_query(job, names[job.job], seen.batches.get(job.job, ())) for job in running], rows_max)
    tasks = _tasks(seen, running)
    workers = sorted(overview.workers, key=lambda one: (one.state == "live", -tasks.get(one.worker_id, 0.0)))
    _table(out, WORKERS, [_worker(one, tasks, rates.get(one.worker_id)) for one in workers], rows_max)


def _table(out: Console, head: tuple[str, ...], rows: list[Row], rows_max: int) -> None:
    say_to(out)
    show_columns(out, head, rows[:rows_max])
    if len(rows) > rows_max:
        say_to(out, f"and {len(rows) - rows_max} more; see `rhino status`")


def _query(job: JobView, name: str, batches: Iterable[BatchLoad]) -> Row:
    known = list(batches)
    away = Cell(str(job.missed_now), "yellow" if job.missed_now else "")
    if not known:
        return _cut(name), "?" if job.batch_id < 0 else str(job.batch_id), "?", "?", "", "?", "?", away, "?"
    seconds = [one.batch_s for one in known]
    last, median = known[-1], sorted(seconds)[len(seconds) // 2]
    slow = last.trigger_s and last.batch_s > last.trigger_s
    lag = max(((one.behind, one.unit) for one in last.lags), default=None)
    return (
        _cut(name),
        str(last.batch_id),
        Cell(f"{last.batch_s:.2f} s", "yellow" if slow else ""),
        f"{median:.2f} s",
        "".join(BARS[round(one / (max(seconds) or 1.0) * (len(BARS) - 1))] for one in seconds),
        str(last.input_rows),
        "-" if lag is None else f"{lag[0]:.0f}",
        away,
        "?" if last.imbalance is None else f"{last.imbalance:.2f}",
    )


def _seconds(batches: Iterable[BatchLoad]) -> float:
    return max((one.batch_s for one in list(batches)), default=0.0)  # another thread appends some


def _tasks(seen: Activity, running: Iterable[JobView]) -> dict[str, float]:
    """Task seconds of each worker in the newest batches of the running queries."""
    found: dict[str, float] = {}
    for job in running:
        for node in seen.batches[job.job][-1].virtual_nodes if job.job in seen.batches else ():
            found[node.desired_worker] = found.get(node.desired_worker, 0.0) + node.task_s
    return found


def _worker(one: WorkerView, tasks: Mapping[str, float], rate: float | None) -> Row:
    state = one.state if one.disk == "ok" else f"disk-{one.disk}"
    style = "green" if state == "live" else "red"
    return (
        _cut(one.worker_id),
        Cell("draining" if one.draining and state == "live" else state, "yellow" if one.draining else style),
        f"{tasks.get(one.worker_id, 0.0):.2f} s",
        str(one.owned_groups),
        str(one.secondary_groups),
        decimal(one.stored_bytes),
        decimal(one.free_bytes),
        "?" if rate is None else decimal(round(rate)),
        f"{one.last_heartbeat_ago_s:.1f} s",
    )


def _cut(name: str) -> str:
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 1]}…"


def run_top(manager: str, interval_s: float) -> NoReturn:
    """Shows it until Ctrl-C. A silent manager is reported, and asked again."""
    seen, out = Activity(), console()
    threading.Thread(target=_follow, args=(manager, seen), daemon=True).start()
    while True:
        try:
            overview = fetch_overview(manager)
        except UnavailableError as error:
            say(f"error: {error}", error=True)
        else:
            rates = seen.rates(overview.workers, time.monotonic())
            out.clear()
            say(time.strftime("%Y-%m-%d %H:%M:%S"))
            render(seen, overview, rates, out, max((out.height - 9) // 2, 3) if out.is_terminal else 1000)
        sleep(interval_s)


def _follow(manager: str, seen: Activity) -> None:
    while True:
        try:
            with HandoverClient(manager) as client:
                for load in client.watch_load():
                    seen.logged(load)
        except RhinoError:  # the other thread reports it
            sleep(AGAIN_S)
