"""Commands about stopped queries refuse a running one, as far as the manager and the checkpoint tell."""

from __future__ import annotations

import time

from rhino.client.connection import manager_channel
from rhino_core.errors import ConflictError, PreconditionError, UnknownError
from rhino_core.rpc.channel import call_sync
from rhino_pb import common_pb2, handover_pb2, handover_pb2_grpc
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.run_locks import RIGHT, RunLocks

REPORT_S = 2.0  # a driver reports within this time that a query has ended
RETURN_S = 20.0  # more than the time in which a driver that was lost may come back, by the manager
POLL_S = 0.05
RUNS, MAY_RETURN = "its driver runs it", "its driver was lost just now and may come back"


def refuse_running(manager: str, checkpoint: QueryCheckpoint, otherwise: str = "") -> None:
    """Raises ConflictError if a driver runs the query of `checkpoint`, or may. `otherwise`: another way out.

    Waits a moment for the report of a driver that has just stopped the query, and longer for a driver that was lost.
    After a restart of the manager any driver may be one of these.
    """
    more = f"; {otherwise}" if otherwise else ""
    begun = time.monotonic()
    with manager_channel(manager) as channel:
        stub = handover_pb2_grpc.HandoverManagerStub(channel)
        while state := _state(stub, manager, checkpoint.job):
            if time.monotonic() > begun + (REPORT_S if state == RUNS else RETURN_S):
                raise ConflictError(
                    f"query {checkpoint.job}: {state}, by the manager at {manager}. Stop the query first{more}"
                )
            time.sleep(POLL_S)
    right = RunLocks(checkpoint.folder)
    if right.owned():
        raise ConflictError(
            f"query {checkpoint.job}: {right.owner()} has the right to run it, by {right.lock(RIGHT)}. Stop that "
            f"process first{more}"
        )


def _state(stub: handover_pb2_grpc.HandoverManagerStub, manager: str, job: str) -> str:
    """Why the query may run. Empty: it does not. Soon after its start, the manager does not know all queries."""
    doing, request = f"manager at {manager}", handover_pb2.ListJobsRequest()
    jobs = call_sync(doing, lambda: stub.ListJobs(request, timeout=10)).jobs
    known = next((one for one in jobs if one.job == job), None)
    if known is not None:
        return RUNS if known.connected else MAY_RETURN if known.may_return else ""
    asked = common_pb2.ForgetJobRequest(job=job, now=True, dry_run=True)  # refused as long as it may run
    try:
        call_sync(doing, lambda: stub.ForgetJob(asked, timeout=10))
    except UnknownError:
        pass
    except PreconditionError as error:
        return str(error)
    return ""
