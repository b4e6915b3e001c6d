"""How the virtual nodes of each query are spread over the workers, as sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.filesize import decimal

from rhino.cli.columns import Row
from rhino.client.overview import JobView, Overview, VirtualNodeView, query_names

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
