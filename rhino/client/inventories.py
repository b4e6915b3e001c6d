"""Collects the stored files of a job from all workers, to find the versions with all their files."""

from __future__ import annotations

from collections.abc import Collection

from rhino.client.connection import manager_channel, worker_channel
from rhino.client.handover_client import HandoverClient
from rhino_archive.bucket import Bucket
from rhino_archive.reading import manifest_names, read_manifest, read_part
from rhino_core.errors import PreconditionError, UnavailableError
from rhino_core.ids import GroupId, Worker
from rhino_core.rpc import convert
from rhino_core.rpc.channel import call_sync
from rhino_core.rpc.inventory import files_of
from rhino_pb import peer_pb2, peer_pb2_grpc, replication_pb2, replication_pb2_grpc
from spark_connector.rewind.plan import StoredFiles

TIMEOUT_S = 15.0


def require_stopped(manager: str, job: str) -> None:
    """Raises PreconditionError while a driver may run the job or a handover moves it.

    It asks by a `forget` with dry_run. Raises UnknownError when no worker stores anything of the job, and
    UnavailableError.
    """
    with HandoverClient(manager, timeout_s=TIMEOUT_S) as client:
        client.forget_job(job, now=True, dry_run=True)


def collect_files(manager: str, groups: Collection[GroupId]) -> StoredFiles:
    """Returns the files of these groups on all workers. Every known worker must answer: it may have the newest version.

    Raises PreconditionError if a worker is not live, and UnavailableError.
    """
    stored = StoredFiles()
    for worker in _workers(manager):
        _add(worker, groups, stored)
    return stored


async def add_archived(bucket: Bucket, job: str, stored: StoredFiles) -> bool:
    """Adds the files of all archived batches of a job: tasks load them from there. Returns whether there are any.

    Raises the errors of `read_manifest` and of `read_part`.
    """
    names = await manifest_names(bucket, job)
    for name in names:
        for part in (await read_manifest(bucket, name)).parts:
            versions = await read_part(bucket, job, part)
            stored.add((file.entry for version in versions for file in version.files), ())
    return bool(names)


def _workers(manager: str) -> list[Worker]:
    with manager_channel(manager) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        request = replication_pb2.ListWorkersRequest()
        reply = call_sync(f"manager at {manager}", lambda: stub.ListWorkers(request, timeout=TIMEOUT_S))
    absent = [w.worker.worker_id for w in reply.workers if w.state != replication_pb2.WORKER_STATE_LIVE]
    if absent:
        raise PreconditionError(
            f"workers that are not live may hold newer versions: {', '.join(sorted(absent))}; start their sidecars, or "
            f"give up each one that will not come back: rhino forget --worker {min(absent)} --manager {manager}"
        )
    return [convert.worker_of(w.worker) for w in reply.workers]


def _add(worker: Worker, groups: Collection[GroupId], stored: StoredFiles) -> None:
    doing = f"inventory of worker {worker.worker_id} at {worker.peer_address}"
    with worker_channel(worker.worker_id, worker.peer_address) as channel:
        stub = peer_pb2_grpc.PeerStub(channel)
        for group in groups:
            request = peer_pb2.InventoryRequest(group=convert.group_to_pb(group))
            reply = call_sync(doing, lambda request=request: stub.Inventory(request, timeout=TIMEOUT_S))  # type: ignore[misc]
            if reply.worker.worker_id != worker.worker_id:
                raise UnavailableError(
                    f"the sidecar at {worker.peer_address} is worker {reply.worker.worker_id}, not {worker.worker_id}"
                )
            floors = [convert.store_version_of(floor.version) for floor in reply.floors]
            stored.add(files_of(reply.files), floors)
