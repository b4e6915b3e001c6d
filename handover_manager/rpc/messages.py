"""Between the handover manager's core and its protobuf messages."""

from __future__ import annotations

from handover_manager.core.drain import DrainState
from handover_manager.core.events import BatchLogged, PushLocations, QueryStarted
from handover_manager.core.explain import Explanation
from handover_manager.core.handover import Handover
from handover_manager.core.intents import Drain, Intent, Rebalance, ScaleIn, ScaleOut, check_workers, weight_of
from handover_manager.core.job import Job
from handover_manager.core.move import Move, MoveKind
from handover_manager.core.plan import Plan, Request
from handover_manager.core.predict import Prediction, StepPrediction
from handover_manager.core.step import Phase, Step
from handover_manager.core.strategy import Strategy, kind_of
from handover_manager.core.view import ClusterView, GroupSeen, TaskGroup, WorkerSeen, groups_of
from handover_manager.core.work import Work
from rhino.ids import VirtualNode
from rhino.rpc import convert
from rhino_pb import handover_pb2 as pb
from rhino_pb import replication_pb2

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
REACHABLE = (replication_pb2.WORKER_STATE_LIVE, replication_pb2.WORKER_STATE_SUSPECT)


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
    )


def _step_to_pb(step: Step) -> pb.StepStatus:
    return pb.StepStatus(
        phase=PHASES[step.phase],
        reason=step.reason,
        configuration_epochs=step.configuration_epochs,
        marked_ms=step.marked_ms,
        finished_ms=step.finished_ms,
        confirmed_batch_id=step.confirmed_batch_id,
        bytes_moved=step.bytes_moved,
        pause_s=step.pause_s,
    )


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


def handover_to_pb(handover: Handover) -> pb.HandoverStatus:
    return pb.HandoverStatus(
        handover_id=handover.handover_id,
        plan=plan_to_pb(handover.plan),
        phase=PHASES[handover.phase],
        reason=handover.reason,
        configuration_epoch=handover.configuration_epoch,
        started_ms=handover.started_ms,
        marked_ms=handover.marked_ms,
        finished_ms=handover.finished_ms,
        confirmed_batch_id=handover.confirmed_batch_id,
        bytes_moved=handover.bytes_moved,
        waiting_for=[node.name for node in sorted(handover.waiting_for)],
        steps=[_step_to_pb(step) for step in handover.steps],
        measured=_measured_to_pb(handover),
    )


def job_to_pb(job: Job, view: ClusterView) -> pb.JobStatus:
    work = job.work.usual()
    nodes = [
        pb.VirtualNodeStatus(
            virtual_node=node.name,
            desired_worker=job.desired.get(node, ""),
            actual_worker=job.actual.get(node, ""),
            misses=job.misses.get(node, 0),
            holders=view.holders(groups_of(node, operators)),
            rows=work[node].rows if node in work else None,
            task_s=work[node].task_s if node in work else None,
        )
        for node, operators in sorted(job.nodes.items())
    ]
    return pb.JobStatus(
        job=job.job,
        run_id=job.run_id,
        name=job.name,
        connected=job.session is not None,
        batch_id=job.batch_id,
        configuration_epoch=job.configuration_epoch,
        virtual_nodes=nodes,
        application_id=job.application_id,
        misses=sum(job.misses.values()),
        missed_now=len(job.missed),
    )


def locations_to_pb(effect: PushLocations, generation: int) -> pb.DesiredLocations:
    return pb.DesiredLocations(
        job=effect.job,
        configuration_epoch=effect.configuration_epoch,
        locations=[
            pb.Location(task_group=group, partition=partition, hosts=hosts)
            for group, partition, hosts in effect.locations
        ],
        generation=generation,
    )


def query_started_of(message: pb.QueryStarted, session: int, application_id: str) -> QueryStarted:
    groups = tuple(TaskGroup(g.task_group, tuple(g.operators), g.partitions) for g in message.task_groups)
    known = (session, application_id, message.job, message.run_id, message.name)
    return QueryStarted(*known, groups, message.unplanned)


def batch_logged_of(message: pb.BatchLogged) -> BatchLogged:
    versions = tuple(convert.store_version_of(v) for v in message.versions)
    work = {VirtualNode(message.job, w.task_group, w.partition): Work(w.rows, w.task_s) for w in message.work}
    return BatchLogged(message.job, message.run_id, message.batch_id, versions, work, message.repeated)


def view_of(workers: replication_pb2.ListWorkersReply, groups: replication_pb2.DescribeGroupsReply) -> ClusterView:
    return ClusterView(
        workers={w.worker.worker_id: _worker_of(w) for w in workers.workers},
        groups={g.group.group: g for g in map(_group_of, groups.groups) if g.group.members},
    )


def _worker_of(message: replication_pb2.WorkerStatus) -> WorkerSeen:
    return WorkerSeen(
        worker=convert.worker_of(message.worker),
        reachable=message.state in REACHABLE,
        live=message.state == replication_pb2.WORKER_STATE_LIVE,
        free_bytes=message.free_bytes,
        disk=convert.disk_of(message.disk),
        disk_message=message.disk_message,
        draining=message.draining,
    )


def _group_of(message: replication_pb2.GroupStatus) -> GroupSeen:
    stored = {m.worker.worker_id: m.stored_bytes for m in [*message.members, *message.others]}
    return GroupSeen(convert.replica_group_of(message.group), stored)
