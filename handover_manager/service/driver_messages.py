"""Converts reports of drivers, and messages to them, between the core and protobuf messages."""

from __future__ import annotations

from handover_manager.events import (
    BatchLogged,
    DriverEffect,
    Event,
    ExecutorChanged,
    NameLost,
    ProbeSession,
    PushLocations,
    QueryEnded,
    QueryIdle,
    QueryStarted,
    ReadCheckpoint,
    RefuseQuery,
    SessionAnswered,
)
from handover_manager.plan.work import Work
from handover_manager.view import TaskGroup
from rhino_core.errors import InvalidRequestError
from rhino_core.ids import PARTITIONS_MAX, VirtualNode
from rhino_core.rpc import convert
from rhino_model.loads import SourceLag
from rhino_pb import handover_pb2 as pb

GROUPS_MAX = 2 * PARTITIONS_MAX  # replica groups of one query


def event_of(message: pb.DriverEvent, session: int, hello: pb.DriverHello, principal: str = "") -> Event:
    """The event in a driver's message after its hello. `principal`: the name in the driver's certificate.

    Raises InvalidRequestError for an impossible one.
    """
    match message.WhichOneof("event"):
        case "query_started":
            return query_started_of(message.query_started, session, hello, principal)
        case "batch_logged":
            return batch_logged_of(message.batch_logged, session)
        case "query_idle":
            idle = message.query_idle
            return QueryIdle(session, idle.job, idle.run_id, idle.configuration_epoch)
        case "query_ended":
            return QueryEnded(session, message.query_ended.job, message.query_ended.run_id)
        case "alive":
            return SessionAnswered(session)
        case "executor_changed":
            return executor_changed_of(message.executor_changed, session)
        case other:
            raise InvalidRequestError(f"driver event {other!r} is not expected here")


def _desired_to_pb(effect: PushLocations, generation: int) -> pb.DesiredLocations:
    index = {worker: number for number, (worker, _) in enumerate(effect.hosts)}
    return pb.DesiredLocations(
        job=effect.job,
        configuration_epoch=effect.configuration_epoch,
        locations=[
            pb.Location(task_group=group, partition=partition, worker_indexes=[index[w] for w in workers])
            for group, partition, workers in effect.locations
        ],
        workers=[pb.DesiredWorker(worker_id=worker, host=host) for worker, host in effect.hosts],
        generation=generation,
    )


def command_of(effect: DriverEffect, generation: int) -> pb.DriverCommand:
    match effect:
        case PushLocations():
            return pb.DriverCommand(desired=_desired_to_pb(effect, generation))
        case RefuseQuery(_, job, run_id, reason):
            return pb.DriverCommand(refused=pb.QueryRefused(job=job, run_id=run_id, reason=reason))
        case ProbeSession():
            return pb.DriverCommand(probe=pb.DriverProbe())
        case NameLost(_, workers):
            return pb.DriverCommand(lost=pb.LostWorkers(workers=workers))
        case ReadCheckpoint(_, job, batch_id):
            return pb.DriverCommand(checkpoint=pb.ReadCheckpoint(job=job, batch_id=batch_id))


def query_started_of(
    message: pb.QueryStarted, session: int, hello: pb.DriverHello, principal: str = ""
) -> QueryStarted:
    """Raises InvalidRequestError for more than GROUPS_MAX replica groups: each of them costs time and memory."""
    count = sum(group.partitions * max(1, len(group.operators)) for group in message.task_groups)
    if count > GROUPS_MAX:
        raise InvalidRequestError(
            f"query {message.job}: {count} replica groups (partitions x operators), at most {GROUPS_MAX} are allowed"
        )
    return QueryStarted(
        session=session,
        application_id=hello.application_id,
        job=message.job,
        run_id=message.run_id,
        name=message.name,
        task_groups=tuple(TaskGroup(g.task_group, tuple(g.operators), g.partitions) for g in message.task_groups),
        unplanned=message.unplanned,
        settings=convert.settings_of(hello.settings) if hello.HasField("settings") else None,
        host=hello.host,
        location=message.location,
        rhino_version=hello.rhino_version,
        principal=principal,
        temporary=message.temporary,
    )


def _work_of(message: pb.NodeWork) -> Work:
    return Work(None if message.rows_not_counted else message.rows, message.task_s)


def executor_changed_of(message: pb.ExecutorChanged, session: int) -> ExecutorChanged:
    return ExecutorChanged(session, message.executor_id, message.host, message.removed, message.worker_id)


def batch_logged_of(message: pb.BatchLogged, session: int) -> BatchLogged:
    return BatchLogged(
        session=session,
        job=message.job,
        run_id=message.run_id,
        batch_id=message.batch_id,
        versions=tuple(convert.store_version_of(v) for v in message.versions),
        work={VirtualNode(message.job, w.task_group, w.partition): _work_of(w) for w in message.work},
        repeated=message.repeated,
        floors=tuple(convert.store_version_of(f.version) for f in message.floors),
        rows=message.input_rows,
        batch_s=message.batch_s,
        trigger_s=message.trigger_s,
        lags=tuple(SourceLag(one.source, one.unit, one.behind, one.read) for one in message.lags),
    )
