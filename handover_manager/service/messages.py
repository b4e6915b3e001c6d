"""Converts requests of users, and the answers to them, between the core and protobuf messages."""

from __future__ import annotations

from collections.abc import Iterable

from handover_manager.adapt.scaling import UNKNOWN, Wanted
from handover_manager.drive.handover import DrivenHandover
from handover_manager.drive.handovers import Handovers
from handover_manager.drive.step import DrivenStep
from handover_manager.queries.forgetting import Deletion
from handover_manager.queries.history import HANDOVER, ActionRecord
from handover_manager.queries.job import Job
from handover_manager.view import ClusterView
from rhino_model.codec import encode
from rhino_model.handovers import Handover, Measured, Step, groups_of
from rhino_pb import handover_pb2 as pb


def _step_view(step: DrivenStep) -> Step:
    outcome = step.outcome
    return Step(
        phase=step.phase,
        reason=step.reason,
        configuration_epochs=step.configuration_epochs,
        marked_ms=step.marker.set_ms if step.marker is not None else 0,
        finished_ms=outcome.finished_ms if outcome is not None else 0,
        confirmed_batch_id=_batch_id(outcome.batch_id if outcome is not None else None),
        bytes_moved=step.bytes_moved,
        pause_s=outcome.pause_s if outcome is not None else None,
    )


def _batch_id(batch_id: int | None) -> int:
    """-1 is no batch."""
    return -1 if batch_id is None else batch_id


def action_to_pb(action: ActionRecord, handovers: Handovers) -> pb.Action:
    handover = handovers.get(action.handover_id)
    outcome = "done" if handover is None or action.kind != HANDOVER else handover.phase.value
    return pb.Action(
        at_ms=action.at_ms,
        by=action.by,
        kind=action.kind,
        job=action.job,
        name=action.name,
        worker=action.worker,
        handover_id=action.handover_id,
        detail=action.detail,
        outcome=outcome,
        reason=handover.reason if handover is not None else "",
        figures=_figures(handover) if handover is not None and action.kind == HANDOVER else None,
    )


def _figures(handover: DrivenHandover) -> pb.HandoverFigures:
    return pb.HandoverFigures(
        predicted_pause_s=handover.plan.prediction.pause_s,
        pause_s=handover.pause_s,
        predicted_total_s=handover.plan.prediction.total_s,
        total_s=handover.total_s,
        bytes_to_move=handover.plan.bytes_to_move,
        bytes_moved=handover.bytes_moved,
    )


def handover_to_pb(handover: DrivenHandover) -> pb.HandoverStatus:
    """The handover as users see it."""
    total_s = handover.total_s
    shown = Handover(
        handover_id=handover.handover_id,
        phase=handover.phase,
        plan=handover.plan,
        reason=handover.reason,
        configuration_epoch=handover.configuration_epoch or 0,
        started_ms=handover.started_ms,
        marked_ms=handover.marked_ms or 0,
        finished_ms=handover.finished_ms or 0,
        confirmed_batch_id=_batch_id(handover.confirmed_batch_id),
        bytes_moved=handover.bytes_moved,
        waiting_for=tuple(node.name for node in sorted(handover.waiting_for)),
        steps=tuple(map(_step_view, handover.steps)),
        measured=None if total_s is None else Measured(total_s, handover.pause_s, handover.error),
        by=handover.by,
    )
    return encode(pb.HandoverStatus, shown)


def job_to_pb(job: Job, view: ClusterView, wanted: Wanted = UNKNOWN) -> pb.JobStatus:
    run, logged, desired, work = job.run, job.logged, job.map, job.work.usual()
    nodes = [
        pb.VirtualNodeStatus(
            virtual_node=node.name,
            desired_worker=desired.desired.get(node, ""),
            actual_worker=logged.actual.get(node, ""),
            misses=logged.misses.get(node, 0),
            holders=view.holders(groups_of(node, operators)),
            rows=work[node].rows if node in work else None,
            task_s=work[node].task_s if node in work else None,
        )
        for node, operators in sorted(desired.nodes.items())
    ]
    return pb.JobStatus(
        job=job.job,
        run_id=run.run_id,
        name=run.name,
        connected=run.session is not None,
        batch_id=_batch_id(logged.newest_id),
        configuration_epoch=desired.configuration_epoch,
        virtual_nodes=nodes,
        application_id=run.application_id,
        misses=sum(logged.misses.values()),
        missed_now=len(logged.missed),
        location=job.location,
        owner=job.owner,
        driver_host=run.host,
        rhino_version=run.rhino_version if run.session is not None else "",
        workers_wanted=wanted.workers,
        workers_wanted_why=wanted.why,
        lags=[encode(pb.SourceLag, one) for one in wanted.lags],
    )


def set_activity(message: pb.JobStatus, job: Job, executors: int | None, now: float) -> None:
    """Sets how long the query has done nothing. Leaves out what is not known."""
    ago_s, interval_s = job.quiet_s(now), job.measurements.batch_s
    message.MergeFrom(pb.JobStatus(batch_ago_s=ago_s, batch_interval_s=interval_s, executors=executors))


def with_deletions(jobs: Iterable[pb.JobStatus], deletions: Iterable[Deletion], now: float) -> list[pb.JobStatus]:
    """Marks forgotten jobs, and adds the ones known only to the replication manager."""
    found = {job.job: job for job in jobs}
    for deletion in deletions:
        message = found.setdefault(deletion.job, pb.JobStatus(job=deletion.job, batch_id=_batch_id(None)))
        message.delete_in_s, message.forgotten_ms = deletion.left_s(now), deletion.forgotten_ms
        message.forgotten_by = deletion.by
    return list(found.values())
