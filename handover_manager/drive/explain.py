"""Explains, from the manager's knowledge, the places of a virtual node and of its replica groups."""

from __future__ import annotations

from collections.abc import Iterable

from handover_manager.drive.handover import DrivenHandover
from handover_manager.drive.step import DrivenStep
from handover_manager.queries.job import Job
from handover_manager.view import ClusterView, GroupSeen
from rhino_core.errors import UnknownError
from rhino_core.ids import DiskState, VirtualNode
from rhino_model.handovers import Explanation, Move, Phase, groups_of


def explain(job: Job, node: VirtualNode, handovers: Iterable[DrivenHandover], view: ClusterView) -> Explanation:
    """Raises UnknownError for a virtual node unknown to the job."""
    if node not in job.map.nodes:
        have = ", ".join(n.name for n in sorted(job.map.nodes)[:20]) or "none yet"
        raise UnknownError(f"virtual node {node.name} of job {job.job}: unknown; it has {have}")
    known = view.known(groups_of(node, job.map.nodes[node]))
    desired, actual = job.map.desired.get(node, ""), job.logged.actual.get(node, "")
    moved = [(h, step, m) for h in handovers for step in h.steps for m in step.moves if m.node == node]
    reasons = [
        _desired(job, node, known, view),
        *_running(moved),
        *_last(moved),
        _actual(job, node, desired, actual),
        *(_group(seen, view) for seen in known),
    ]
    return Explanation(job.job, node.name, desired, actual, tuple(reasons))


def workers_of(job: Job, node: VirtualNode, view: ClusterView) -> set[str]:
    """The workers in the explanation of a virtual node's location."""
    known = view.known(groups_of(node, job.map.nodes[node]))
    members = {m.worker.worker_id for seen in known for m in seen.group.members}
    return {job.map.desired.get(node, ""), job.logged.actual.get(node, ""), *members} - {""}


def _desired(job: Job, node: VirtualNode, known: list[GroupSeen], view: ClusterView) -> str:
    desired = job.map.desired.get(node)
    if desired is None:
        return "desired: nowhere yet, for no replica group of it exists: the first executor that opens it decides"
    owners = sorted({seen.owner for seen in known})
    if node in job.map.pinned:
        return f"desired: {desired}, set by a handover's marker until it owns the groups (now {', '.join(owners)})"
    if desired in owners:
        return f"desired: {desired}, the owner of its replica groups"
    lost = ", ".join(owner for owner in owners if not view.reachable(owner))
    if lost:
        return f"desired: {desired}, the first whole member in the chain, for the owner {lost} is out of reach"
    return f"desired: {desired}, kept while its groups are unknown"


def _running(moved: list[tuple[DrivenHandover, DrivenStep, Move]]) -> list[str]:
    return [
        f"handover {_asked(h)} moves it from {m.origin} to {m.target}: step "
        f"{h.steps.index(step) + 1} of {len(h.steps)}, {step.phase.value}; {m.target}: {m.why}"
        for h, step, m in moved
        if not step.state.ended
    ]


def _last(moved: list[tuple[DrivenHandover, DrivenStep, Move]]) -> list[str]:
    done = [(step.outcome, h, step, m) for h, step, m in moved if step.outcome is not None]
    if not done:
        return []
    outcome, h, step, m = max(done, key=lambda found: found[0].finished_ms)
    in_batch = step.phase is Phase.CONFIRMED and outcome.batch_id is not None
    result = f"in batch {outcome.batch_id}" if in_batch else step.reason
    return [f"last handover {_asked(h)}, from {m.origin} to {m.target} ({m.why}): {step.phase.value} {result}"]


def _asked(handover: DrivenHandover) -> str:
    by = f", asked for by {handover.by}" if handover.by else ""
    return f"{handover.handover_id} ({handover.plan.intent}{by})"


def _actual(job: Job, node: VirtualNode, desired: str, actual: str) -> str:
    misses = f"{job.logged.misses.get(node, 0)} batches ran elsewhere than desired"
    if not actual:
        return f"ran: not known since the manager's start; {misses}"
    if actual == desired:
        return f"ran: on {actual}, as desired, in the newest batch; {misses}"
    return f"ran: on {actual} in the newest batch, not on {desired}: just moved, or no executor free; {misses}"


def _group(seen: GroupSeen, view: ClusterView) -> str:
    group = seen.group
    members = [
        f"{m.worker.worker_id} ({'owner, ' if m is group.members[0] else ''}"
        f"{'whole' if m.whole else 'catching up'}{_state(m.worker.worker_id, view)}, "
        f"{seen.stored_bytes.get(m.worker.worker_id, 0)} bytes)"
        for m in group.members
    ]
    length = f"{len(members)} of {group.settings.replication_factor + 1} members"
    beyond = len(members) > group.settings.replication_factor + 1
    longer = ": longer than asked for, as under a handover or a drain" if beyond else ""
    return f"group {group.group}, epoch {group.epoch}, {length}{longer}: {' > '.join(members)}"


def _state(worker: str, view: ClusterView) -> str:
    found = view.workers.get(worker)
    if found is None or not found.reachable:
        return ", out of reach"
    marks = [", draining"] if found.draining else []
    if found.disk is not DiskState.OK:
        marks.append(f", disk {found.disk.value}")
    return "".join(marks)
