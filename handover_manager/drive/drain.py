"""Whether a worker can be removed without a remote read of state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from handover_manager.drive.handover import DrivenHandover
from handover_manager.queries.job import Job
from handover_manager.view import ClusterView, GroupSeen, Remains
from rhino_core.errors import TooFewWorkersError, UnknownError
from rhino_core.ids import VirtualNode
from rhino_model.handovers import DrainView, Move

NAMED_MAX = 8  # maximum number of names in one blocker


def check_enough(worker: str, view: ClusterView) -> None:
    """Raises TooFewWorkersError if the other workers cannot take all copies of this worker's groups."""
    for lacking in _lacking_workers(worker, view):
        raise TooFewWorkersError(lacking)


def _lacking_workers(worker: str, view: ClusterView) -> list[str]:
    """A message for people if the other workers are too few for a job."""
    others = [name for name, seen in view.workers.items() if seen.eligible and name != worker]
    for seen in view.groups.values():
        needed = seen.group.settings.replication_factor + 1
        if _concerns(seen, worker) and needed > len(others):
            return [
                f"worker {worker} cannot be drained: job {seen.group.group.job} needs {needed} workers, "
                f"{len(others)} others take copies ({', '.join(sorted(others)) or 'none'}): start more sidecars"
            ]
    return []


def drain_state(
    worker: str,
    running: Sequence[Job],
    handovers: Iterable[DrivenHandover],
    view: ClusterView,
    names: Callable[[str], str],
    remains: Remains,
    *,
    settled: bool,
) -> DrainView:
    """Whether `worker` can be removed.

    `running`: jobs with a driver, or with a lost driver that may come back. `handovers`: the active ones. `names`: of
    queries, by id. `settled`: drivers and workers have had time to report since the start of the manager. Raises
    UnknownError.
    """
    if worker not in view.workers:
        known = ", ".join(sorted(view.workers)) or "none"
        raise UnknownError(f"worker {worker!r}: unknown; known are {known}")
    meant = {node for job in running for node, there in job.map.desired.items() if there == worker}
    acting = [job for job in running if not job.idle]  # the next batch of an idle job follows the map
    was = [
        node for job in acting for node in job.map.nodes if job.logged.actual.get(node) == worker and node not in meant
    ]
    unseen = [
        node for job in acting for node in job.map.nodes if node in job.map.desired and node not in job.logged.actual
    ]
    short = [
        seen
        for seen in view.groups.values()
        if _concerns(seen, worker) and (seen.group.group in remains.unsettled or not _has_copies(seen, worker, view))
    ]
    draining = view.workers[worker].draining
    mine = [h for h in handovers if any(worker in (m.origin, m.target) for s in _open(h) for m in s)]

    def nodes(some: Iterable[VirtualNode]) -> list[str]:
        return [f"{names(node.job)}/{node.name}" for node in sorted(some)]

    blockers = [
        *([] if draining else [f"worker {worker} is not marked as draining: copies may still be placed there"]),
        *([] if settled else ["the manager has just started: drivers and workers may not have reported yet"]),
        *_named("virtual nodes that are meant to run there", nodes(meant)),
        *_named("virtual nodes that ran there in the newest batch", nodes(was)),
        *_named("virtual nodes that have not run since the manager's start", nodes(unseen)),
        *_named(
            "groups that lack whole copies apart from it",
            [f"{names(g.job)}/{g.operator}/{g.partition}" for g in (s.group.group for s in short)],
        ),
        *(_lacking_workers(worker, view) if short else ()),
        *_named(
            "files of jobs that have had no group since the journal was lost (start the queries, or forget the jobs)",
            sorted({names(group.job) for group in remains.ungrouped}),
        ),
        *(f"handover {h.handover_id} is under way" for h in mine),
    ]
    count = len(meant.union(was, unseen))
    moving = {m.node for h in mine for s in _open(h) for m in s if m.origin == worker}
    handover_id = mine[0].handover_id if mine else ""
    groups = len(short) + len(remains.ungrouped)
    return DrainView(worker, draining, tuple(blockers), count, groups, handover_id, len(meant - moving))


def _open(handover: DrivenHandover) -> list[tuple[Move, ...]]:
    return [step.moves for step in handover.steps if not step.state.ended]


def _concerns(seen: GroupSeen, worker: str) -> bool:
    return seen.has(worker) or bool(seen.stored_bytes.get(worker))


def _has_copies(seen: GroupSeen, worker: str, view: ClusterView) -> bool:
    """Whether enough other workers have whole copies: live ones that stay, as many as the job asks for."""
    others = [m.worker.worker_id for m in seen.group.members if m.whole and m.worker.worker_id != worker]
    staying = [w for w in others if w in view.workers and view.workers[w].live and not view.workers[w].draining]
    return len(staying) > seen.group.settings.replication_factor


def _named(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = ", ..." if len(names) > NAMED_MAX else ""
    return [f"{what}: {len(names)} ({', '.join(names[:NAMED_MAX])}{more})"]
