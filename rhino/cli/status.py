"""`rhino status`: shows workers, virtual nodes, groups and their lag."""

from __future__ import annotations

import time

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from rhino.cli.output import shown
from rhino.client.overview import GroupView, JobView, Overview, WorkerView
from rhino.client.scrub import ScrubView

_LEFT = ("worker", "host", "state", "virtual node", "desired", "actual", "holders", "members", "group", "durability")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in _LEFT else "right")
    return table


def _workers(workers: tuple[WorkerView, ...]) -> Table:
    table = _table("Workers", "worker", "host", "state", "owns", "secondary of", "stored", "free", "last beat", "scrub")
    for w in workers:
        colour = {"live": "green", "suspect": "yellow"}.get(w.state, "red")
        table.add_row(
            w.worker_id,
            w.host,
            f"[{colour}]{w.state}[/]"
            + (f", [red]disk {w.disk}[/]" if w.disk != "ok" else "")
            + (", [yellow]draining[/]" if w.draining else ""),
            str(w.owned_groups),
            str(w.secondary_groups),
            decimal(w.stored_bytes),
            decimal(w.free_bytes),
            f"{w.last_heartbeat_ago_s:.1f} s",
            _scrub(w.scrub),
        )
    return table


def _scrub(scrub: ScrubView) -> str:
    if not scrub.number:
        return "never"
    done = min(scrub.checked_bytes / scrub.total_bytes, 1.0) if scrub.total_bytes else 1.0
    ended = time.strftime("%Y-%m-%d", time.localtime(scrub.finished_ms / 1000))
    text = f"{done:.0%}" if scrub.running else ended
    colour = "red" if scrub.missing else "yellow"
    return f"{text}, [{colour}]{scrub.errors} damaged, {scrub.repaired} repaired[/]" if scrub.errors else text


def _job(job: JobView, groups: tuple[GroupView, ...]) -> Table:
    state = "driver connected" if job.connected else "no driver"
    title = f"Job {job.name or job.job} ({job.job}), {state}, batch {job.batch_id}, configuration epoch "
    title += str(job.configuration_epoch)
    for settings in sorted({str(group.settings) for group in groups if group.group.job == job.job}):
        title += f", {settings}"
    title += f", {job.misses} misses ({job.missed_now} in the newest batch)"
    table = _table(title, "virtual node", "desired", "actual", "misses", "rows", "task", "holders")
    for node in job.virtual_nodes:
        actual = node.actual_worker or "?"
        at_home = not node.actual_worker or node.actual_worker == node.desired_worker
        table.add_row(
            node.virtual_node,
            node.desired_worker or "?",
            actual if at_home else f"[yellow]{actual}[/]",
            str(node.misses),
            "?" if node.rows is None else str(node.rows),
            "?" if node.task_s is None else f"{node.task_s * 1000:.0f} ms",
            ", ".join(node.holders),
        )
    return table


def _members(group: GroupView) -> str:
    marks = []
    for member in group.members:
        mark = member.worker_id if member.whole else f"{member.worker_id} (catching up)"
        marks.append(f"[red]{mark} ({member.state})[/]" if member.state == "lost" else mark)
    return " > ".join(marks)


def _groups(groups: tuple[GroupView, ...]) -> Table:
    table = _table("Replica groups", "group", "epoch", "copies", "durability", "lag", "stored", "members")
    for g in groups:
        copies = sum(m.whole and m.state != "lost" for m in g.members)
        shown = f"[red]{copies}/{g.min_copies} degraded[/]" if g.degraded else f"{copies}/{g.min_copies}"
        stored = max((m.stored_bytes for m in g.members), default=0)
        table.add_row(
            f"{g.group.job[:8]}/{g.group.operator}/{g.group.partition}",
            str(g.epoch),
            shown,
            g.durability,
            str(g.lag_versions),
            decimal(stored),
            _members(g),
        )
    return table


def render(overview: Overview, console: Console) -> None:
    """Prints the overview as tables."""
    overview = shown(overview)
    console.print(_workers(overview.workers))
    for job in overview.jobs:
        console.print()
        console.print(_job(job, overview.groups))
    for handover in overview.handovers:
        left = f", waiting for {', '.join(handover.waiting_for)}" if handover.waiting_for else ""
        step = f"step {handover.step} of {len(handover.steps)} {handover.phase.value}"
        console.print(f"\nhandover {handover.handover_id} ({handover.plan.intent}): {step}{left}")
    console.print()
    console.print(_groups(overview.groups))
    for worker in overview.workers:
        if worker.disk_message:
            console.print(f"worker {worker.worker_id}, disk {worker.disk}: {worker.disk_message}")
    degraded = sum(g.degraded for g in overview.groups)
    if degraded:
        console.print(f"\n[red]{degraded} of {len(overview.groups)} groups have fewer whole members than min_copies[/]")
