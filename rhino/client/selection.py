"""Parts of an overview: one query, or one worker."""

from __future__ import annotations

import dataclasses

from rhino.client.overview import JobView, Overview, query_names
from rhino_core.errors import UnknownError


def select(overview: Overview, *, job: str = "", worker: str = "") -> Overview:
    """Returns the parts of a query (id or unique name) and of a worker. Empty: of any.

    Raises UnknownError for a query or worker unknown to the manager.
    """
    if job:
        overview = _of_job(overview, job)
    return _of_worker(overview, worker) if worker else overview


def _of_job(overview: Overview, job: str) -> Overview:
    names = query_names(overview.jobs)
    ids = {one.job for one in overview.jobs} | {group.group.job for group in overview.groups}
    found = next((one for one in sorted(ids) if job in (one, names.get(one))), None)
    if found is None:
        known = ", ".join(sorted(names.get(one, one) for one in ids)) or "none"
        raise UnknownError(f"query {job!r} is not known by this id, or by a unique name; the known ones are {known}")
    jobs = tuple(one for one in overview.jobs if one.job == found)
    groups = tuple(group for group in overview.groups if group.group.job == found)
    handovers = tuple(one for one in overview.handovers if found in one.plan.jobs)
    mine = {member.worker_id for group in groups for member in group.members}
    mine |= {name for one in jobs for node in one.virtual_nodes for name in (node.desired_worker, node.actual_worker)}
    workers = tuple(worker for worker in overview.workers if worker.worker_id in mine)
    archived = tuple(one for one in overview.archive.queries if one.job == found)
    archive = dataclasses.replace(overview.archive, queries=archived)
    return dataclasses.replace(
        overview, workers=workers, groups=groups, jobs=jobs, handovers=handovers, archive=archive
    )


def _of_worker(overview: Overview, worker: str) -> Overview:
    workers = tuple(one for one in overview.workers if one.worker_id == worker)
    if not workers:
        known = ", ".join(sorted(one.worker_id for one in overview.workers)) or "none"
        raise UnknownError(f"worker {worker!r} is not known; the known workers are {known}")
    groups = tuple(one for one in overview.groups if any(member.worker_id == worker for member in one.members))
    jobs = tuple(one for one in (_on_worker(job, worker) for job in overview.jobs) if one.virtual_nodes)
    handovers = tuple(
        one for one in overview.handovers if any(worker in (move.origin, move.target) for move in one.plan.moves)
    )
    drains = tuple(one for one in overview.drains if one.worker == worker)
    return dataclasses.replace(overview, workers=workers, groups=groups, jobs=jobs, handovers=handovers, drains=drains)


def _on_worker(job: JobView, worker: str) -> JobView:
    nodes = tuple(
        node
        for node in job.virtual_nodes
        if worker in (node.desired_worker, node.actual_worker) or worker in node.holders
    )
    return dataclasses.replace(job, virtual_nodes=nodes)
