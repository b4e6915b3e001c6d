"""Sums over virtual nodes and their copies, by worker and by query: a page never has 100 000 elements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from rhino.client.overview import GroupView, Overview
from rhino.client.verdict import group_name
from rhino.client.virtual_nodes import as_ranges
from rhino_core.ids import GroupId

NAMED_MAX = 5  # replica groups of a query that lack copies, by name
COPIES = ("full", "short", "below", "none")


@dataclass(slots=True)
class OnWorker:
    """Virtual nodes of running queries, and copies of all queries.

    `runs`: virtual nodes written there by the newest logged batch; `desired`: those that should be. `task_s`: seconds
    of their tasks in one batch of each query, medians; None: not reported for one of them. `versions_behind`: of its
    copies behind their owners, in the worst group.
    """

    runs: int = 0
    desired: int = 0
    task_s: float | None = 0.0
    whole_copies: int = 0
    catching_up: int = 0
    versions_behind: int = 0


@dataclass(slots=True)
class OfQuery:
    """Replica groups of a query by their whole copies on reachable workers.

    `full`: replicationFactor + 1. `short`: fewer. `below`: fewer than minCopies. `none`: no copy. `lacking`: names of
    some that are not full, the worst first. `state_bytes`: of one copy each.
    """

    full: int = 0
    short: int = 0
    below: int = 0
    none: int = 0
    lag_versions: int = 0
    state_bytes: int = 0
    lacking: list[str] = field(default_factory=list)


def by_worker(overview: Overview) -> dict[str, OnWorker]:
    """The sums of each worker that is known or named."""
    found: defaultdict[str, OnWorker] = defaultdict(OnWorker, ((w.worker_id, OnWorker()) for w in overview.workers))
    for job in overview.jobs:
        for node in job.virtual_nodes if job.connected else ():
            found[node.desired_worker].desired += 1
            seat = found[node.actual_worker]
            seat.runs += 1
            seat.task_s = None if seat.task_s is None or node.task_s is None else seat.task_s + node.task_s
    for group in overview.groups:
        for member in group.members:
            if member.state != "lost":
                seat = found[member.worker_id]
                seat.whole_copies += member.whole
                seat.catching_up += not member.whole
                behind = group.members[0].newest_version - member.newest_version
                seat.versions_behind = max(seat.versions_behind, behind)
    found.pop("", None)  # of virtual nodes without a worker
    return found


def by_query(overview: Overview, names: dict[str, str]) -> dict[str, OfQuery]:
    """The sums of each job with replica groups. `names`: of the queries, by job."""
    found: defaultdict[str, OfQuery] = defaultdict(OfQuery)
    lacking: list[tuple[int, GroupId, GroupView]] = []
    for group in overview.groups:
        query, copies = found[group.group.job], sum(m.whole and m.state != "lost" for m in group.members)
        if copies > group.replication_factor:
            query.full += 1
        else:
            lacking.append((copies, group.group, group))
            kind = "none" if not copies else "below" if copies < group.min_copies else "short"
            setattr(query, kind, getattr(query, kind) + 1)
        query.lag_versions = max(query.lag_versions, group.lag_versions)
        query.state_bytes += max((member.stored_bytes for member in group.members), default=0)
    for _, name, group in sorted(lacking, key=lambda one: one[:2]):
        if len(found[name.job].lacking) < NAMED_MAX:
            found[name.job].lacking.append(group_name(group, names))
    return found


def on_worker(overview: Overview, worker_id: str, names: dict[str, str]) -> Iterator[dict[str, object]]:
    """For each query the virtual nodes that ran on a worker in the newest batch, as ranges of partitions."""
    for job in overview.jobs:
        here = [node.virtual_node for node in job.virtual_nodes if node.actual_worker == worker_id]
        if here:
            yield {"job": job.job, "query": names[job.job], "nodes": as_ranges(here)}
