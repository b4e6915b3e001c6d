"""The spread of virtual nodes over the workers, as sums, and `rhino scale`: the number of workers wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.filesize import decimal

from rhino.cli import exit_codes
from rhino.cli.columns import Row, show_columns
from rhino.cli.options import CallOptions
from rhino.cli.output import console, say, say_json
from rhino.client.overview import JobView, Overview, VirtualNodeView, fetch_overview, query_names
from rhino_core.errors import UnknownError

HEAD = ("query", "worker", "runs", "desired", "share", "rows", "task time", "copies", "stored")


def balance_rows(overview: Overview) -> list[Row]:
    """A row for each query and worker, and the sums of each query. Empty without virtual nodes."""
    names = query_names(overview.jobs)
    return [row for job in overview.jobs if job.virtual_nodes for row in _of_job(job, names[job.job], overview)]


def _of_job(job: JobView, name: str, overview: Overview) -> Iterable[Row]:
    named = {place for node in job.virtual_nodes for place in (node.desired_worker, node.actual_worker)}
    live = {worker.worker_id for worker in overview.workers if worker.state != "lost"}
    for worker in sorted((named | live) - {""}):
        yield _row(job, name, worker, overview)
    yield _row(job, name, "", overview)


def _row(job: JobView, name: str, worker: str, overview: Overview) -> Row:
    """The row of one worker, or the sums for an empty name."""
    runs = [node for node in job.virtual_nodes if worker in ("", node.actual_worker)]
    desired = sum(worker in ("", node.desired_worker) for node in job.virtual_nodes)
    stored = [
        member.stored_bytes
        for group in overview.groups
        if group.group.job == job.job
        for member in group.members
        if worker in ("", member.worker_id)
    ]
    share = f"{len(runs) / len(job.virtual_nodes):.0%}"
    load = (share, _rows(runs), _task_time(runs))
    return name, worker or "(all)", str(len(runs)), str(desired), *load, str(len(stored)), decimal(sum(stored))


def _rows(nodes: Sequence[VirtualNodeView]) -> str:
    rows = [node.rows for node in nodes if node.rows is not None]
    return str(sum(rows)) if len(rows) == len(nodes) else "?"


def _task_time(nodes: Sequence[VirtualNodeView]) -> str:
    times = [node.task_s for node in nodes if node.task_s is not None]
    return f"{sum(times) * 1000:.0f} ms" if len(times) == len(nodes) else "?"


def run_scale(job: str, call: CallOptions) -> int:
    """Prints the wanted numbers and returns the exit code."""
    overview = fetch_overview(call.manager)
    names = query_names(overview.jobs)
    found = [one for one in overview.jobs if one.connected and job in ("", one.job, names[one.job])]
    if job and not found:
        raise UnknownError(f"query {job!r}: no query with this id or name is running")
    live = sum(worker.state == "live" for worker in overview.workers)
    wanted = max((one.workers_wanted for one in found if one.workers_wanted is not None), default=None)
    if call.as_json:
        say_json({"live": live, "wanted": wanted, "queries": [_scale_fields(one) for one in found]})
        return exit_codes.OK
    say(_scale_verdict(live, wanted, found))
    if found:
        show_columns(console(), ("query", "wanted", "behind", "why"), _scale_rows(found, names))
    return exit_codes.OK


def _scale_fields(job: JobView) -> dict[str, object]:
    wanted = {"wanted": job.workers_wanted, "why": job.workers_wanted_why}
    return {"job": job.job, "name": job.name, **wanted, "lags": job.lags}


def _scale_verdict(live: int, wanted: int | None, found: Sequence[JobView]) -> str:
    if not found:
        return f"{live} workers live, and no query is running"
    if wanted is None:
        return f"{live} workers live; how many are wanted is not known yet"
    if wanted > live:
        return f"{live} workers live, {wanted} wanted: start {wanted - live} more, then `rhino handover scale-out`"
    if wanted < live:
        return f"{live} workers live, {wanted} wanted: `rhino drain` empties one; remove it when that says it is safe"
    return f"{live} workers live, as many as wanted"


def _scale_rows(found: Iterable[JobView], names: dict[str, str]) -> Iterable[Row]:
    for job in found:
        wanted = "?" if job.workers_wanted is None else str(job.workers_wanted)
        behind = ", ".join(f"{lag.behind:.0f} {lag.unit} of {lag.source}" for lag in job.lags if lag.behind)
        yield names[job.job], wanted, behind, job.workers_wanted_why
