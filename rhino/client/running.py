"""Commands about stopped queries refuse a running one, as far as the manager and the checkpoint tell."""

from __future__ import annotations

import time

from rhino.client.connection import manager_channel
from rhino_core.errors import ConflictError
from rhino_core.rpc.channel import call_sync
from rhino_pb import handover_pb2, handover_pb2_grpc
from spark_connector.query_checkpoint import QueryCheckpoint
from spark_connector.run_locks import RIGHT, RunLocks

REPORT_S = 2.0  # a driver reports within this time that a query has ended
RETURN_S = 20.0  # more than the time in which a driver that was lost may come back, by the manager
POLL_S = 0.05


def refuse_running(manager: str, checkpoint: QueryCheckpoint, otherwise: str = "") -> None:
    """Raises ConflictError if a driver runs the query of `checkpoint`, or may. `otherwise`: another way out.

    Waits a moment for the report of a driver that has just stopped the query, and longer for a driver that was lost.
    After a restart of the manager any driver may be one of these.
    """
    more = f"; {otherwise}" if otherwise else ""
    begun = time.monotonic()
    with manager_channel(manager) as channel:
        stub = handover_pb2_grpc.HandoverManagerStub(channel)
        while (known := _status(stub, manager, checkpoint.job)).connected or known.may_return:
            if time.monotonic() > begun + (REPORT_S if known.connected else RETURN_S):
                state = "its driver runs it" if known.connected else "its driver was lost just now and may come back"
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


def _status(stub: handover_pb2_grpc.HandoverManagerStub, manager: str, job: str) -> handover_pb2.JobStatus:
    """Empty for a query unknown to the manager."""
    request = handover_pb2.ListJobsRequest()
    jobs = call_sync(f"manager at {manager}", lambda: stub.ListJobs(request, timeout=10)).jobs
    return next((known for known in jobs if known.job == job), handover_pb2.JobStatus())
