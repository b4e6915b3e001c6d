"""The output of `rhino status`: the verdict, then sections of plain columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from rich.console import Console
from rich.filesize import decimal

from rhino.cli.balance import HEAD as BALANCE_HEAD
from rhino.cli.balance import balance_rows
from rhino.cli.columns import Cell, Row, say_to, show_columns
from rhino.cli.output import local_time
from rhino.client.overview import GroupView, JobView, Overview, WorkerView, query_names
from rhino.client.scrub import ScrubView
from rhino.client.verdict import Level, Verdict, group_name, judge, whole_copies
from rhino_core.text import count, duration
from rhino_core.version import rhino_version
from rhino_model.archives import Archive, ArchiveUsage

DEFAULT_SECTIONS = ("workers", "queries", "forgotten", "balance", "handovers")
LEVELS = {Level.OK: "bold green", Level.DEGRADED: "bold yellow", Level.CRITICAL: "bold red"}
WRITE_USD, READ_USD = 0.005 / 1000, 0.0004 / 1000  # a request: list prices of S3 Standard in us-east-1
_STATES = {"live": "green", "suspect": "yellow", "lost": "red"}


def render(overview: Overview, out: Console, sections: Collection[str] = ()) -> None:
    """Prints the verdict and the sections; without any, the short ones. Empty ones are left out then."""
    _say_verdict(overview, judge(overview), out)
    for name in sections or DEFAULT_SECTIONS:
        head, rows_of = SECTIONS[name]
        rows = rows_of(overview)
        if rows or sections:
            say_to(out)
            show_columns(out, head, rows)
    if "queries" in sections:
        _say_queries(overview, out)
    if overview.archive.url:
        say_to(out)
        say_to(out, archive_line(overview.archive))
    for worker in overview.workers:
        if worker.disk_message:
            say_to(out, f"worker {worker.worker_id}, disk {worker.disk}: {worker.disk_message}")


def _say_verdict(overview: Overview, verdict: Verdict, out: Console) -> None:
    live = sum(worker.state == "live" for worker in overview.workers)
    counts = f"{live} of {len(overview.workers)} workers live, {count(len(overview.jobs), 'query', 'queries')}, "
    counts += count(len(overview.groups), "replica group")
    level = Cell(verdict.level.value.upper(), LEVELS[verdict.level])
    first, *others = verdict.reasons or (counts,)
    say_to(out, level, f": {first}")
    for reason in others:
        say_to(out, f"  {reason}")
    if verdict.reasons:
        say_to(out, f"  {counts}")
    for hint in verdict.hints:
        say_to(out, f"  note: {hint}")


def archive_line(archive: Archive) -> str:
    """The archive in a line: how old, and its drills."""
    age_s = max((one.age_s for one in archive.queries), default=0.0)
    age = f"{duration(age_s)} behind" if age_s else "up to date"
    drills, text = archive.drills, f"archive {archive.url}: {count(len(archive.queries), 'query', 'queries')}, {age}"
    slowest = max(archive.queries, key=lambda one: one.every_s, default=None)
    if slowest is not None and slowest.why:
        text += f", a batch every {duration(slowest.every_s)} ({slowest.why})"
    if not drills.every_s:
        return f"{text}; no restore drills"
    passed = f"the last one {duration(drills.passed_age_s or 0.0)} ago" if drills.passed else "none yet"
    others = {"failed": drills.failed, "unproven": drills.unproven, "not run": drills.not_run}
    more = "".join(f", {number} {what}" for what, number in others.items() if number)
    why = f" ({drills.why})" if drills.why else ""
    return f"{text}; restore drills: {drills.passed} passed, {passed}{more}{why}"


def archive_usage_line(usage: ArchiveUsage) -> str:
    """Requests and bytes a day, and their price."""
    days = max(usage.seconds, 1.0) / 86_400
    price = (usage.writes * WRITE_USD + usage.reads * READ_USD) / days
    writes, reads, size = usage.writes / days, usage.reads / days, decimal(round(usage.uploaded_bytes / days))
    return (
        f"a day, as in the last {duration(usage.seconds)}: {writes:,.0f} requests to write and {reads:,.0f} to read "
        f"(${price:,.2f} at the list prices of S3), {size} uploaded"
    )


def _workers(overview: Overview) -> list[Row]:
    return [_worker(worker) for worker in overview.workers]


def _worker(w: WorkerView) -> Row:
    marks = [w.state, *([f"disk-{w.disk}"] if w.disk != "ok" else []), *(["draining"] if w.draining else [])]
    style = "red" if w.disk != "ok" else "yellow" if w.draining else _STATES.get(w.state, "red")
    held = (str(w.owned_groups), str(w.secondary_groups), decimal(w.stored_bytes), decimal(w.free_bytes))
    beat = f"{w.last_heartbeat_ago_s:.1f} s"
    return w.worker_id, Cell(",".join(marks), style), _host(w), *held, beat, _scrub(w.scrub)


def _host(w: WorkerView) -> str:
    """The host, with `(zone)` or `(zone/rack)` if the worker has labels. `-` stands for an unknown zone."""
    place = f"{w.zone or '-'}/{w.rack}" if w.rack else w.zone
    return f"{w.host} ({place})" if place else w.host


def _scrub(scrub: ScrubView) -> Cell:
    if not scrub.number:
        return Cell("never")
    done = min(scrub.checked_bytes / scrub.total_bytes, 1.0) if scrub.total_bytes else 1.0
    ended = time.strftime("%Y-%m-%d", time.localtime(scrub.finished_ms / 1000))
    text = f"{done:.0%}" if scrub.running else ended
    if not scrub.errors:
        return Cell(text)
    return Cell(f"{text},damaged={scrub.errors},repaired={scrub.repaired}", "red" if scrub.missing else "yellow")


def _versions(overview: Overview) -> list[Row]:
    workers = [(worker.worker_id, worker.rhino_version or "?") for worker in overview.workers]
    here = [("(manager)", overview.rhino_version or "?"), ("(this command)", rhino_version())]
    return [*here, *workers, *_drivers(overview)]


def _drivers(overview: Overview) -> list[Row]:
    """The connected drivers, by the names of their queries."""
    names = query_names(overview.jobs)
    queries: dict[tuple[str, str], list[str]] = {}
    for job in overview.jobs:
        if job.connected:
            queries.setdefault((job.application_id, job.rhino_version), []).append(names[job.job])
    return [(f"(driver of {', '.join(its)})", version or "?") for (_, version), its in queries.items()]


def _queries(overview: Overview) -> list[Row]:
    return [_query(job, overview) for job in overview.jobs]


def _query(job: JobView, overview: Overview) -> Row:
    driver = Cell("connected", "green") if job.connected else Cell("no driver", "yellow")
    if job.delete_in_s is not None:
        driver = Cell("forgotten", "yellow")
    rows = [node.rows for node in job.virtual_nodes]
    total = "?" if None in rows or not rows else str(sum(row or 0 for row in rows))
    groups = [group for group in overview.groups if group.group.job == job.job]
    size = decimal(sum(max((m.stored_bytes for m in group.members), default=0) for group in groups))
    away = Cell(str(job.missed_now), "yellow" if job.missed_now else "")
    name = query_names(overview.jobs)[job.job]
    batch = "?" if job.batch_id < 0 else str(job.batch_id)
    return name, driver, batch, str(len(job.virtual_nodes)), away, str(job.misses), total, size


def _say_queries(overview: Overview, out: Console) -> None:
    """One line for each query with the texts too long for columns."""
    names = query_names(overview.jobs)
    for job in overview.jobs:
        settings = sorted({str(group.settings) for group in overview.groups if group.group.job == job.job})
        place = f"checkpoint {job.location or '?'}, driver on {job.driver_host or '?'}"
        epoch = f"configuration epoch {job.configuration_epoch}"
        say_to(out, f"{names[job.job]}: id {job.job}, {place}, {epoch}{''.join(f', {text}' for text in settings)}")


def _forgotten(overview: Overview) -> list[Row]:
    """Forgotten queries, the next one to be deleted first."""
    names = query_names(overview.jobs)
    rows: list[Row] = []
    for left_s, job in sorted((job.delete_in_s, job.job) for job in overview.jobs if job.delete_in_s is not None):
        found = next(one for one in overview.jobs if one.job == job)
        at = local_time(found.forgotten_ms)
        rows.append((names[job], job, at, found.forgotten_by, Cell(duration(left_s), "yellow")))
    return rows


def _handovers(overview: Overview) -> list[Row]:
    names = query_names(overview.jobs)
    rows: list[Row] = []
    for one in overview.handovers:
        jobs = ",".join(sorted({names.get(move.job, move.job) for move in one.plan.moves}))
        step = f"{one.step} of {len(one.steps)}"
        rows.append((one.handover_id, jobs, one.plan.intent, step, one.phase.value, ",".join(one.waiting_for)))
    return rows


def _nodes(overview: Overview) -> list[Row]:
    names = query_names(overview.jobs)
    rows: list[Row] = []
    for job in overview.jobs:
        for node in job.virtual_nodes:
            away = node.actual_worker not in ("", node.desired_worker)
            actual = Cell(node.actual_worker or "?", "yellow" if away else "")
            keys = "?" if node.rows is None else str(node.rows)
            task = "?" if node.task_s is None else f"{node.task_s * 1000:.0f} ms"
            place = (names[job.job], node.virtual_node, node.desired_worker or "?", actual)
            rows.append((*place, str(node.misses), keys, task, ",".join(node.holders)))
    return rows


def _groups(overview: Overview) -> list[Row]:
    names = query_names(overview.jobs)
    return [_group(group, names) for group in overview.groups]


def _group(g: GroupView, names: dict[str, str]) -> Row:
    copies = len(whole_copies(g))
    style = "red" if g.degraded else "yellow" if copies < g.replication_factor + 1 else ""
    counted = Cell(f"{copies}/{g.replication_factor + 1}", style)
    stored = decimal(max((m.stored_bytes for m in g.members), default=0))
    marks = (
        m.worker_id + ("" if m.whole else "(catching-up)") + (f"({m.state})" if m.state == "lost" else "")
        for m in g.members
    )
    return group_name(g, names), counted, g.durability, str(g.lag_versions), stored, ">".join(marks)


Section = tuple[tuple[str, ...], Callable[[Overview], list[Row]]]
SECTIONS: dict[str, Section] = {
    "workers": (("worker", "state", "host", "owns", "copies", "stored", "free", "beat", "scrub"), _workers),
    "queries": (("query", "driver", "batch", "nodes", "away", "misses", "rows", "state"), _queries),
    "balance": (BALANCE_HEAD, balance_rows),
    "forgotten": (("query", "id", "forgotten", "by", "deleted in"), _forgotten),
    "handovers": (("handover", "query", "intent", "step", "state", "waiting for"), _handovers),
    "versions": (("process", "version"), _versions),
    "nodes": (("query", "node", "desired", "actual", "misses", "rows", "task", "holders"), _nodes),
    "groups": (("group", "copies", "durability", "lag", "stored", "members"), _groups),
}
