"""Selects the demo's handover, and predicts the effect of a killed worker, from the manager's overview."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from rhino.client.overview import JobView, Overview, VirtualNodeView
from rhino.testing.query_watch import RunError


@dataclass(frozen=True, slots=True)
class HandoverChoice:
    virtual_nodes: tuple[str, ...]
    origin: str
    target: str


def handover_choice(job: JobView) -> HandoverChoice:
    """Selects half of the virtual nodes of the most loaded worker, and as target the worker with most replicas of them.

    This is the load balancing of Rhino 5.4.2. Raises RunError when no other worker runs virtual nodes or has replicas.
    """
    nodes: dict[str, list[VirtualNodeView]] = defaultdict(list)
    for node in job.virtual_nodes:
        nodes[node.desired_worker].append(node)
    others = sorted({holder for node in job.virtual_nodes for holder in node.holders} | nodes.keys())
    if len(others) < 2:
        raise RunError(f"all virtual nodes are on {', '.join(nodes)}, and no other worker has a copy of them")
    origin = max(sorted(nodes), key=lambda w: len(nodes[w]))
    half = max(len(nodes[origin]) // 2, 1)

    def held(worker: str) -> list[VirtualNodeView]:
        return sorted(nodes[origin], key=lambda n: worker not in n.holders)[:half]

    others.remove(origin)
    target = max(others, key=lambda w: (sum(w in n.holders for n in held(w)), -len(nodes[w])))
    return HandoverChoice(tuple(n.virtual_node for n in held(target)), origin, target)


def kill_facts(overview: Overview, job_name: str, worker_id: str) -> tuple[frozenset[int], frozenset[tuple[str, int]]]:
    """Returns the partitions on `worker_id`, and (worker, partition) of every whole copy of the named job.

    Raises RunError when the manager knows no connected job of that name.
    """
    job = next((j for j in overview.jobs if j.name == job_name and j.connected), None)
    if job is None:
        raise RunError(f"the manager does not know a connected job {job_name!r}")
    moved = frozenset(int(n.virtual_node.split("/")[1]) for n in job.virtual_nodes if n.actual_worker == worker_id)
    whole = frozenset(
        (member.worker_id, group.group.partition)
        for group in overview.groups
        if group.group.job == job.job
        for member in group.members
        if member.whole
    )
    return moved, whole
