"""Commands about stopped queries refuse one that runs, as far as the manager knows."""

from __future__ import annotations

import time

from rhino.client.connection import manager_channel
from rhino_core.errors import ConflictError
from rhino_core.rpc.channel import call_sync
from rhino_pb import handover_pb2, handover_pb2_grpc

REPORT_S = 2.0  # a driver reports within this time that a query has ended
POLL_S = 0.05


def refuse_running(manager: str, job: str, otherwise: str = "") -> None:
    """Raises ConflictError if a driver runs the query `job`, by the manager. `otherwise`: another way out.

    Waits a moment for the report of a driver that has just stopped the query.
    """
    deadline = time.monotonic() + REPORT_S
    with manager_channel(manager) as channel:
        stub = handover_pb2_grpc.HandoverManagerStub(channel)
        request = handover_pb2.ListJobsRequest()
        while any(
            known.job == job and known.connected
            for known in call_sync(f"manager at {manager}", lambda: stub.ListJobs(request, timeout=10)).jobs
        ):
            if time.monotonic() > deadline:
                more = f"; {otherwise}" if otherwise else ""
                raise ConflictError(
                    f"query {job}: its driver runs it, by the manager at {manager}. Stop the query first{more}"
                )
            time.sleep(POLL_S)
