"""Choices of the demo, from what the manager says: what to hand over, and what a killed worker takes along."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from deploy.demo.watch import DemoError
from rhino.rpc.overview import JobView, Overview, VirtualNodeView


@dataclass(frozen=True, slots=True)
class HandoverChoice:
    virtual_nodes: tuple[str, ...]
    origin: str
    target: str


def handover_choice(job: JobView) -> HandoverChoice:
    """Half of the virtual nodes of the worker that has most, to the worker that holds most replicas of them.

    This is the load balancing of Rhino 5.4.2. DemoError when no other worker runs or holds any.
    """
    nodes: dict[str, list[VirtualNodeView]] = defaultdict(list)
    for node in job.virtual_nodes:
        nodes[node.desired_worker].append(node)
    others = sorted({holder for node in job.virtual_nodes for holder in node.holders} | nodes.keys())
    if len(others) < 2:
        raise DemoError(f"all virtual nodes are on {', '.join(nodes)}, and no other worker has a copy of them")
    origin = max(sorted(nodes), key=lambda w: len(nodes[w]))
    half = max(len(nodes[origin]) // 2, 1)

    def held(worker: str) -> list[VirtualNodeView]:
        return sorted(nodes[origin], key=lambda n: worker not in n.holders)[:half]

    others.remove(origin)
    target = max(others, key=lambda w: (sum(w in n.holders for n in held(w)), -len(nodes[w])))
    return HandoverChoice(tuple(n.virtual_node for n in held(target)), origin, target)


def kill_facts(overview: Overview, job_name: str, worker_id: str) -> tuple[frozenset[int], frozenset[tuple[str, int]]]:
    """Partitions that run on `worker_id`, and (worker, partition) of every whole copy, of the job so named."""
    job = next((j for j in overview.jobs if j.name == job_name and j.connected), None)
    if job is None:
        raise DemoError(f"the manager does not know a connected job {job_name!r}")
    moved = frozenset(int(n.virtual_node.split("/")[1]) for n in job.virtual_nodes if n.actual_worker == worker_id)
    whole = frozenset(
        (member.worker_id, group.group.partition)
        for group in overview.groups
        if group.group.job == job.job
        for member in group.members
        if member.whole
    )
    return moved, whole
