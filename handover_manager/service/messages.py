"""Converts requests of users, and what they are shown, between the core and protobuf messages."""

from __future__ import annotations

from collections.abc import Iterable

from handover_manager.adapt.decisions import Decision
from handover_manager.adapt.scaling import UNKNOWN, Wanted
from handover_manager.drive.drain import DrainState
from handover_manager.drive.explain import Explanation
from handover_manager.drive.handover import Handover
from handover_manager.drive.handovers import Handovers
from handover_manager.drive.states import Phase
from handover_manager.drive.step import Step
from handover_manager.plan.intents import Drain, Intent, Rebalance, ScaleIn, ScaleOut, check_workers, weight_of
from handover_manager.plan.move import Move, MoveKind
from handover_manager.plan.planner import Plan, Request
from handover_manager.plan.predict import Prediction, StepPrediction
from handover_manager.plan.strategy import Strategy, kind_of
from handover_manager.queries.forgetting import Deletion
from handover_manager.queries.history import HANDOVER, ActionRecord
from handover_manager.queries.job import Job
from handover_manager.view import ClusterView, groups_of
from rhino_pb import handover_pb2 as pb

PHASES: dict[Phase, pb.HandoverPhase.ValueType] = {
    Phase.PLANNED: pb.HANDOVER_PHASE_PLANNED,
    Phase.PREPARING: pb.HANDOVER_PHASE_PREPARING,
    Phase.MARKED: pb.HANDOVER_PHASE_MARKED,
    Phase.CONFIRMED: pb.HANDOVER_PHASE_CONFIRMED,
    Phase.ROLLED_BACK: pb.HANDOVER_PHASE_ROLLED_BACK,
    Phase.CANCELLED: pb.HANDOVER_PHASE_CANCELLED,
    Phase.REDIRECTED: pb.HANDOVER_PHASE_REDIRECTED,
}
KINDS: dict[MoveKind, pb.MoveKind.ValueType] = {
    MoveKind.DIRECT: pb.MOVE_KIND_DIRECT,
    MoveKind.CHECKPOINT_ASSISTED: pb.MOVE_KIND_CHECKPOINT_ASSISTED,
}


def request_of(message: pb.HandoverRequest) -> Request:
    return Request(
        job=message.job,
        virtual_nodes=tuple(message.virtual_nodes),
        target=message.target,
        deadline_s=message.deadline_s,
        intent=_intent_of(message),
        strategy=strategy_of(message.strategy),
    )


def _intent_of(message: pb.HandoverRequest) -> Intent | None:
    match message.WhichOneof("intent"):
        case "drain":
            return Drain(message.drain.worker)
        case "rebalance":
            return Rebalance(weight_of(message.rebalance.by))
        case "scale_out":
            return ScaleOut(check_workers(tuple(message.scale_out.workers)), weight_of(message.scale_out.by))
        case "scale_in":
            return ScaleIn(check_workers(tuple(message.scale_in.workers)))
        case _:
            return None


def strategy_of(message: pb.Strategy) -> Strategy:
    """Raises InvalidRequestError for values out of range."""
    return Strategy(
        kind=kind_of(message.kind),
        batch_size=message.batch_size or 1,
        gap_s=message.gap_s,
        gap_batches=message.gap_batches,
        start_at_ms=message.start_at_ms,
        max_transfers=message.max_transfers,
    )


def _move_to_pb(move: Move) -> pb.Move:
    return pb.Move(
        virtual_node=move.node.name,
        origin=move.origin,
        target=move.target,
        kind=KINDS[move.kind],
        bytes_to_move=move.bytes_to_move,
        state_bytes=move.state_bytes,
        job=move.node.job,
        why=move.why,
    )


def _prediction_to_pb(found: Prediction | StepPrediction) -> pb.Prediction:
    message = pb.Prediction(pause_s=found.pause_s, total_s=found.total_s)
    if isinstance(found, Prediction):
        message.basis = found.basis
    elif found.prepare_s is not None:
        message.prepare_s = found.prepare_s
    return message


def plan_to_pb(plan: Plan) -> pb.HandoverPlan:
    return pb.HandoverPlan(
        job=plan.jobs[0] if len(plan.jobs) == 1 else "",
        moves=[_move_to_pb(move) for move in plan.moves],
        bytes_to_move=plan.bytes_to_move,
        strategy=plan.strategy.kind.value,
        steps=[
            pb.PlannedStep(
                virtual_nodes=[move.node.name for move in moves],
                bytes_to_move=sum(move.bytes_to_move for move in moves),
                prediction=_prediction_to_pb(predicted),
            )
            for moves, predicted in zip(plan.steps, plan.prediction.steps, strict=True)
        ],
        prediction=_prediction_to_pb(plan.prediction),
        intent=plan.intent,
        hot=[
            pb.HotNode(
                job=one.node.job, virtual_node=one.node.name, worker=one.worker, by=one.by.value, shares=one.shares
            )
            for one in plan.hot
        ],
    )


def _step_to_pb(step: Step) -> pb.StepStatus:
    outcome = step.outcome
    return pb.StepStatus(
        phase=PHASES[step.phase],
        reason=step.reason,
        configuration_epochs=step.configuration_epochs,
        marked_ms=step.marker.set_ms if step.marker is not None else 0,
        finished_ms=outcome.finished_ms if outcome is not None else 0,
        confirmed_batch_id=_batch_id(outcome.batch_id if outcome is not None else None),
        bytes_moved=step.bytes_moved,
        pause_s=outcome.pause_s if outcome is not None else None,
    )


def _batch_id(batch_id: int | None) -> int:
    """On the wire -1 is no batch."""
    return -1 if batch_id is None else batch_id


def _measured_to_pb(handover: Handover) -> pb.Measured | None:
    if handover.total_s is None:
        return None
    return pb.Measured(pause_s=handover.pause_s, total_s=handover.total_s, error=handover.error)


def drain_to_pb(state: DrainState) -> pb.DrainStatus:
    return pb.DrainStatus(
        worker=state.worker,
        draining=state.draining,
        safe_to_remove=state.safe_to_remove,
        blockers=state.blockers,
        virtual_nodes=state.virtual_nodes,
        groups=state.groups,
        handover_id=state.handover_id,
        staying=state.staying,
    )


def explanation_to_pb(found: Explanation) -> pb.ExplainReply:
    return pb.ExplainReply(
        job=found.node.job,
        virtual_node=found.node.name,
        desired_worker=found.desired,
        actual_worker=found.actual,
        reasons=found.reasons,
    )


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


def _figures(handover: Handover) -> pb.HandoverFigures:
    return pb.HandoverFigures(
        predicted_pause_s=handover.plan.prediction.pause_s,
        pause_s=handover.pause_s,
        predicted_total_s=handover.plan.prediction.total_s,
        total_s=handover.total_s,
        bytes_to_move=handover.plan.bytes_to_move,
        bytes_moved=handover.bytes_moved,
    )


def handover_to_pb(handover: Handover) -> pb.HandoverStatus:
    return pb.HandoverStatus(
        handover_id=handover.handover_id,
        plan=plan_to_pb(handover.plan),
        phase=PHASES[handover.phase],
        reason=handover.reason,
        configuration_epoch=handover.configuration_epoch or 0,
        started_ms=handover.started_ms,
        marked_ms=handover.marked_ms or 0,
        finished_ms=handover.finished_ms or 0,
        confirmed_batch_id=_batch_id(handover.confirmed_batch_id),
        bytes_moved=handover.bytes_moved,
        waiting_for=[node.name for node in sorted(handover.waiting_for)],
        steps=[_step_to_pb(step) for step in handover.steps],
        measured=_measured_to_pb(handover),
        by=handover.by,
    )


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
        lags=[pb.SourceLag(**one._asdict()) for one in wanted.lags],
    )


def with_deletions(jobs: Iterable[pb.JobStatus], deletions: Iterable[Deletion], now: float) -> list[pb.JobStatus]:
    """Marks forgotten jobs, and adds those that only the replication manager knows."""
    found = {job.job: job for job in jobs}
    for deletion in deletions:
        message = found.setdefault(deletion.job, pb.JobStatus(job=deletion.job, batch_id=_batch_id(None)))
        message.delete_in_s, message.forgotten_ms = deletion.left_s(now), deletion.forgotten_ms
        message.forgotten_by = deletion.by
    return list(found.values())


def decision_to_pb(decision: Decision) -> pb.AdaptationDecision:
    return pb.AdaptationDecision(
        number=decision.number,
        started_ms=decision.at_ms,
        finished_ms=decision.last_ms,
        times=decision.repeated,
        job=decision.job,
        outcome=decision.outcome.value,
        why=decision.why,
        measured=decision.measured,
        expected=decision.expected,
        planned=decision.planned,
        gain_s=decision.gain_s,
        cost_s=decision.cost_s,
        bytes_to_move=decision.bytes,
        moves=[pb.DecidedMove(virtual_node=m.node, origin=m.origin, target=m.target) for m in decision.moves],
        hot=decision.hot,
        handover_id=decision.handover_id,
        goal=decision.goal,
    )
