"""Between the handover manager's core and its protobuf messages."""

from __future__ import annotations

from handover_manager.core.events import BatchLogged, PushLocations, QueryStarted
from handover_manager.core.handover import Handover, Phase
from handover_manager.core.job import Job
from handover_manager.core.plan import Move, MoveKind, Plan, Request
from handover_manager.core.view import ClusterView, GroupSeen, TaskGroup, WorkerSeen, groups_of
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
    return Request(message.job, tuple(message.virtual_nodes), message.target, message.deadline_s)


def _move_to_pb(move: Move) -> pb.Move:
    return pb.Move(
        virtual_node=move.node.name,
        origin=move.origin,
        target=move.target,
        kind=KINDS[move.kind],
        bytes_to_move=move.bytes_to_move,
        state_bytes=move.state_bytes,
    )


def plan_to_pb(plan: Plan) -> pb.HandoverPlan:
    return pb.HandoverPlan(
        job=plan.job,
        moves=[_move_to_pb(move) for move in plan.moves],
        bytes_to_move=plan.bytes_to_move,
        strategy=plan.strategy,
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
    )


def job_to_pb(job: Job, view: ClusterView) -> pb.JobStatus:
    nodes = [
        pb.VirtualNodeStatus(
            virtual_node=node.name,
            desired_worker=job.desired.get(node, ""),
            actual_worker=job.actual.get(node, ""),
            misses=job.misses.get(node, 0),
            holders=view.holders(groups_of(node, operators)),
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
    return QueryStarted(session, application_id, message.job, message.run_id, message.name, groups)


def batch_logged_of(message: pb.BatchLogged) -> BatchLogged:
    versions = tuple(convert.store_version_of(v) for v in message.versions)
    return BatchLogged(message.job, message.run_id, message.batch_id, versions)


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
    )


def _group_of(message: replication_pb2.GroupStatus) -> GroupSeen:
    stored = {m.worker.worker_id: m.stored_bytes for m in [*message.members, *message.others]}
    return GroupSeen(convert.replica_group_of(message.group), stored)
