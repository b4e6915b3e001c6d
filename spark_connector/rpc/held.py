"""Asks every worker what it has of a job: together they say which versions can still be opened."""

from __future__ import annotations

from collections.abc import Collection

from rhino.errors import PreconditionError, UnavailableError
from rhino.ids import GroupId, Worker
from rhino.rpc import convert
from rhino.rpc.channel import call_sync, sync_channel
from rhino.rpc.forget import forget_job
from rhino_pb import peer_pb2, peer_pb2_grpc, replication_pb2, replication_pb2_grpc
from spark_connector.rewind.plan import HeldState

TIMEOUT_S = 15.0


def check_over(manager: str, job: str) -> None:
    """Raises PreconditionError while a driver may run the job or a handover moves it; a dry `forget` asks just that.

    Raises UnknownError when nobody stores anything of it, and UnavailableError.
    """
    forget_job(manager, job, dry_run=True)


def ask_all(manager: str, groups: Collection[GroupId]) -> HeldState:
    """What the workers have of these groups. Every known worker must answer, since the newest version may be there.

    Raises PreconditionError for a worker that is not live, and UnavailableError.
    """
    held = HeldState()
    for worker in _workers(manager):
        _ask(worker, groups, held)
    return held


def _workers(manager: str) -> list[Worker]:
    with sync_channel(manager) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        request = replication_pb2.ListWorkersRequest()
        reply = call_sync(f"manager at {manager}", lambda: stub.ListWorkers(request, timeout=TIMEOUT_S))
    absent = [w.worker.worker_id for w in reply.workers if w.state != replication_pb2.WORKER_STATE_LIVE]
    if absent:
        raise PreconditionError(
            f"workers that are not live may hold newer versions: {', '.join(sorted(absent))}; start their sidecars, or "
            f"give up each one that is lost for good: rhino forget --worker {min(absent)} --manager {manager}"
        )
    return [convert.worker_of(w.worker) for w in reply.workers]


def _ask(worker: Worker, groups: Collection[GroupId], held: HeldState) -> None:
    doing = f"what worker {worker.worker_id} at {worker.peer_address} has"
    with sync_channel(worker.peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        for group in groups:
            request = peer_pb2.InventoryRequest(group=convert.group_to_pb(group))
            reply = call_sync(doing, lambda request=request: stub.Inventory(request, timeout=TIMEOUT_S))  # type: ignore[misc]
            if reply.worker.worker_id != worker.worker_id:
                raise UnavailableError(f"{worker.peer_address} is {reply.worker.worker_id}, not {worker.worker_id}")
            floors = [convert.store_version_of(floor.version) for floor in reply.floors]
            held.add([convert.file_of(file) for file in reply.files], floors)
