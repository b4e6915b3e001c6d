"""One document for the page, from the answers of the manager. Every figure in it is theirs, or a sum of theirs.

Fields have the names of `rhino status --json` and of the other commands. None: not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rhino.client.overview import JobView, Overview, WorkerView, query_names
from rhino.client.scrub import NO_SCRUB
from rhino.client.verdict import judge
from rhino.page.samples import KEPT, Course, Samples
from rhino.page.sums import COPIES, OfQuery, OnWorker, by_query, by_worker
from rhino_model.codec import plain
from rhino_model.decisions import Decision, Decisions
from rhino_model.handovers import Action, DrainView, Handover, Phase, Plan

LISTED_MAX = 50  # the newest handovers, decisions and actions; and moves of a plan
SAMPLES_MAX = 12_000  # of all queries together
NOT_MARKED = (Phase.PLANNED, Phase.PREPARING)  # steps that can still be cancelled


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one look at the manager, complete at `at_ms` (wall clock) after `took_s`; lists: oldest first."""

    overview: Overview
    handovers: tuple[Handover, ...]
    decisions: Decisions
    actions: tuple[Action, ...]
    at_ms: int
    took_s: float


def document(answers: Answers, samples: Samples) -> dict[str, Any]:
    """Returns the content of the page as values for JSON. Its size grows with workers and queries only."""
    overview, names = answers.overview, query_names(answers.overview.jobs)
    seats, sums = by_worker(overview), by_query(overview, names)
    drains = {drain.worker: drain for drain in overview.drains}
    handovers = {one.handover_id: one for one in answers.handovers}
    running = [one for one in answers.handovers if not one.phase.ended]
    ended = [one for one in answers.handovers if one.phase.ended][-LISTED_MAX:]
    decisions = answers.decisions.decisions[-LISTED_MAX:]
    kept = max(min(KEPT, SAMPLES_MAX // max(len(overview.jobs), 1)), 1)
    return {
        "at_ms": answers.at_ms,
        "took_s": answers.took_s,
        "rhino_version": overview.rhino_version,
        "verdict": plain(judge(overview)),
        "totals": _totals(overview, sums.values()),
        "workers": [_worker(one, seats[one.worker_id], drains.get(one.worker_id)) for one in overview.workers],
        "queries": [
            {**_query(one, overview, sums.get(one.job, OfQuery()), samples.courses.get(one.job), kept), "query": name}
            for one, name in zip(overview.jobs, names.values(), strict=True)
        ],
        "handovers": [handover_fields(one, names) for one in reversed([*ended, *running])],
        "drains": plain(overview.drains),
        "adaptation": answers.decisions.mode,
        "decisions": [_decision(one, names, handovers.get(one.handover_id)) for one in reversed(decisions)],
        "archive": plain(overview.archive) if overview.archive.url or overview.archive.error else None,
        "actions": plain(answers.actions[: -LISTED_MAX - 1 : -1]),
    }


def _totals(overview: Overview, sums: Collection[OfQuery]) -> dict[str, int]:
    return {
        "workers": len(overview.workers),
        "workers_live": sum(worker.state == "live" for worker in overview.workers),
        "queries": len(overview.jobs),
        "queries_running": sum(job.connected for job in overview.jobs),
        "virtual_nodes": sum(len(job.virtual_nodes) for job in overview.jobs),
        "groups": len(overview.groups),
        **{name: sum(getattr(one, name) for one in sums) for name in COPIES},
        "stored_bytes": sum(worker.stored_bytes for worker in overview.workers),
        "free_bytes": sum(worker.free_bytes for worker in overview.workers if worker.state != "lost"),
    }


def _worker(one: WorkerView, seat: OnWorker, drain: DrainView | None) -> dict[str, Any]:
    """`safe_to_remove`: None: it is not draining, so nobody has asked."""
    more = {"damaged_files": one.scrub.missing, "safe_to_remove": None if drain is None else drain.safe_to_remove}
    fields: dict[str, Any] = plain(replace(one, scrub=NO_SCRUB))
    del fields["scrub"]
    return fields | asdict(seat) | more


def _query(job: JobView, overview: Overview, sums: OfQuery, course: Course | None, kept: int) -> dict[str, Any]:
    """`rows`: keys in all of its stores. `workers`: how many it runs on."""
    rows = [node.rows for node in job.virtual_nodes]
    course = course or Course()
    return {
        **plain(replace(job, virtual_nodes=())),
        "virtual_nodes": len(job.virtual_nodes),
        "workers": len({node.actual_worker for node in job.virtual_nodes} - {""}),
        "rows": None if None in rows or not rows else sum(row or 0 for row in rows),
        "archive": plain(next((one for one in overview.archive.queries if one.job == job.job), None)),
        **asdict(sums),
        "imbalance": course.imbalance,
        "batches": list(course.batches)[-kept:],
        "copies_behind": list(course.copies_behind)[-kept:],
        "restarts": list(course.restarts),
    }


def handover_fields(one: Handover, names: Mapping[str, str]) -> dict[str, Any]:
    """A handover without the moves of an ended one. `names`: of the queries, by job."""
    fields: dict[str, Any] = plain(replace(one, plan=Plan(()), steps=(), waiting_for=one.waiting_for[:LISTED_MAX]))
    plan = plan_fields(one.plan, names, 0 if one.phase.ended else LISTED_MAX)
    steps = {"step": one.step, "steps": len(one.steps), "cancellable": any(s.phase in NOT_MARKED for s in one.steps)}
    return fields | {"ended": one.phase.ended, "plan": plan, **steps}


def plan_fields(plan: Plan, names: Mapping[str, str], moves_max: int) -> dict[str, Any]:
    """A plan with its first `moves_max` moves, each with its `step`."""
    listed = [(number, move) for number, step in enumerate(plan.steps, 1) for move in step.moves]
    return {
        **plain(replace(plan, steps=(), hot=())),
        "hot": [str(hot) for hot in plan.hot],
        "steps": len(plan.steps),
        "jobs": plan.jobs,
        "queries": [names.get(job, job) for job in plan.jobs],
        "moves": [plain(move) | {"step": n, "query": names.get(move.job, move.job)} for n, move in listed[:moves_max]],
        "moves_total": len(listed),
        "bytes_to_move": plan.bytes_to_move,
    }


def _decision(one: Decision, names: Mapping[str, str], handover: Handover | None) -> dict[str, Any]:
    """With its handover, whose plan has predictions and which has measured figures, as far as they are known."""
    fields: dict[str, Any] = plain(replace(one, moves=one.moves[:LISTED_MAX]))
    known = None if handover is None else handover_fields(handover, names)
    return fields | {"query": names.get(one.job, one.job), "moves_total": len(one.moves), "handover": known}
