"""Client of the replication manager's service: how the handover manager sees and changes the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from handover_manager.core.events import ChangeGroup
from handover_manager.core.view import ClusterView
from handover_manager.rpc.messages import view_of
from rhino.rpc import convert
from rhino.rpc.channel import aio_channel, call
from rhino_pb import common_pb2, handover_pb2, replication_pb2, replication_pb2_grpc

T = TypeVar("T")
CALL_TIMEOUT_S = 5.0
RETRY_FOR_S = 2.0  # of idempotent calls, while the connection is being made


class ReplicationClient:
    """All methods raise RhinoErrors; UnavailableError after CALL_TIMEOUT_S without an answer."""

    def __init__(self, address: str) -> None:
        self._doing = f"replication manager at {address}"
        self._channel = aio_channel(address)
        self._stub = replication_pb2_grpc.ReplicationManagerStub(self._channel)

    async def close(self) -> None:
        await self._channel.close(None)

    async def view(self) -> ClusterView:
        """Workers and groups of now. Groups are asked first, so that their members are among the workers."""
        groups_request = replication_pb2.DescribeGroupsRequest()
        groups = await self._try(lambda: self._stub.DescribeGroups(groups_request, timeout=CALL_TIMEOUT_S))
        workers_request = replication_pb2.ListWorkersRequest()
        workers = await self._try(lambda: self._stub.ListWorkers(workers_request, timeout=CALL_TIMEOUT_S))
        return view_of(workers, groups)

    async def change_group(self, effect: ChangeGroup) -> None:
        request = replication_pb2.ChangeGroupRequest(
            group=convert.group_to_pb(effect.group), add_member=effect.add_member, make_owner=effect.make_owner
        )
        await call(self._doing, lambda: self._stub.ChangeGroup(request, timeout=CALL_TIMEOUT_S))

    async def set_draining(self, worker_id: str, draining: bool) -> None:
        """Repeating it is harmless. Raises UnknownError."""
        request = replication_pb2.SetDrainingRequest(worker_id=worker_id, draining=draining)
        await self._try(lambda: self._stub.SetDraining(request, timeout=CALL_TIMEOUT_S))

    async def publish_floors(self, batch: handover_pb2.BatchLogged) -> None:
        """Passes on what the driver read in Spark's commit log."""
        request = replication_pb2.PublishFloorsRequest(
            job=batch.job, floors=batch.floors, batch_id=batch.batch_id, logged=batch.versions
        )
        await self._try(lambda: self._stub.PublishFloors(request, timeout=CALL_TIMEOUT_S))

    async def forget_job(self, job: str, *, dry_run: bool) -> common_pb2.ForgetJobReply:
        request = common_pb2.ForgetJobRequest(job=job, dry_run=dry_run)
        return await self._try(lambda: self._stub.ForgetJob(request, timeout=CALL_TIMEOUT_S))

    async def _try(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await call(self._doing, attempt, retry_for_s=RETRY_FOR_S)
