"""Branches of queries: a new query that begins with the state of another one, as links to the same files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rhino.client.connection import manager_channel, worker_channel
from rhino.client.handover_client import HandoverClient
from rhino_core.errors import PreconditionError, RhinoError, UnavailableError, UnknownError
from rhino_core.ids import GroupId, StoreVersion, Worker
from rhino_core.rpc import convert
from rhino_core.rpc.channel import call_sync
from rhino_pb import peer_pb2, peer_pb2_grpc, replication_pb2, replication_pb2_grpc
from spark_connector.branch.folder import BranchFolder
from spark_connector.query_checkpoint import QueryCheckpoint

TIMEOUT_S = 60.0  # of a worker's call, which may have to send state to other workers
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch that was made. `linked_bytes`: of the files on the workers that own them, none of which was copied."""

    job: str
    source_job: str
    checkpoint: str
    batch: int
    stores: int
    files: int
    linked_bytes: int
    workers: tuple[str, ...]
    duration_s: float


def branch(manager: str, source: Path, target: Path, *, batch: int | None = None, dry_run: bool = False) -> Branch:
    """Makes a query checkpoint `target` that begins with the state of the query of `source` after a batch.

    The query of `source` may be running, and is not changed. `batch`: None is its newest committed one. The new query
    has an id of its own. Its state is links to the files of the other query, on the workers that have them. Raises
    AlreadyThereError if `target` exists, PreconditionError, UnknownError if a version is not stored any more,
    UnavailableError. Nothing stays of a branch that has failed.
    """
    started = time.monotonic()
    checkpoint = QueryCheckpoint(source)
    logged = checkpoint.logged(batch)
    holders = _holders(manager, checkpoint.job)
    _check_stored(checkpoint, logged.versions, holders)
    linked = _Linked()
    with BranchFolder(checkpoint, target, logged.batch_id) as folder:
        if not dry_run:
            folder.fill()
            try:
                linked = _link_all(logged.versions, holders, folder.job)
                folder.finish()
            except BaseException as error:
                _take_back(manager, folder.job, error)
                raise
        return Branch(
            "" if dry_run else folder.job,
            checkpoint.job,
            str(target.absolute()),
            logged.batch_id,
            len(logged.versions),
            linked.files,
            linked.bytes,
            tuple(sorted(linked.workers)),
            time.monotonic() - started,
        )


@dataclass(frozen=True, slots=True)
class _Linked:
    files: int = 0
    bytes: int = 0
    workers: frozenset[str] = frozenset()


_Holders = Mapping[GroupId, Sequence[Worker]]


def _holders(manager: str, job: str) -> _Holders:
    """Returns for each group of the job the live workers to ask: the owner, then the other whole members."""
    with manager_channel(manager) as channel:
        stub = replication_pb2_grpc.ReplicationManagerStub(channel)
        request = replication_pb2.DescribeGroupsRequest(job=job)
        reply = call_sync(f"manager at {manager}", lambda: stub.DescribeGroups(request, timeout=TIMEOUT_S))
    return {
        convert.group_of(status.group.group): [
            convert.worker_of(member.worker)
            for member in status.members
            if member.whole and member.state == replication_pb2.WORKER_STATE_LIVE
        ]
        for status in reply.groups
    }


def _check_stored(checkpoint: QueryCheckpoint, versions: Iterable[StoreVersion], holders: _Holders) -> None:
    groups = {version.store.group for version in versions}
    if unknown := sorted(groups - holders.keys()):
        raise PreconditionError(
            f"{checkpoint.folder}: no worker stores state of query {checkpoint.job}, such as {unknown[0]}; a query "
            "that does not run with Rhino cannot be branched"
        )
    if lost := sorted(group for group in groups if not holders[group]):
        raise UnavailableError(f"group {lost[0]}: no whole member of it is live; try again when one is back")


def _link_all(versions: Sequence[StoreVersion], holders: _Holders, job: str) -> _Linked:
    """Asks one worker for each version, and the next one where that fails. Raises the last error."""
    waiting, linked, attempt = list(versions), _Linked(), 0
    failure: RhinoError | None = None
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while waiting:
            by_worker: dict[str, tuple[Worker, list[StoreVersion]]] = {}
            for version in waiting:
                found = holders[version.store.group]
                if attempt >= len(found):
                    raise failure or UnknownError(f"{version}: no worker holds it")
                worker = found[attempt]
                by_worker.setdefault(worker.worker_id, (worker, []))[1].append(version)
            waiting, attempt = [], attempt + 1
            calls = [(asked, pool.submit(_caught, worker, asked, job)) for worker, asked in by_worker.values()]
            for asked, call in calls:
                reply = call.result()
                if isinstance(reply, RhinoError):
                    waiting, failure = [*waiting, *asked], reply
                else:
                    workers = linked.workers | {reply.worker.worker_id}
                    linked = _Linked(linked.files + reply.files, linked.bytes + reply.linked_bytes, workers)
    return linked


def _caught(worker: Worker, versions: Sequence[StoreVersion], job: str) -> peer_pb2.BranchReply | RhinoError:
    request = peer_pb2.BranchRequest(
        versions=[convert.store_version_to_pb(version) for version in versions], job=job, timeout_s=TIMEOUT_S
    )
    doing = f"branch on worker {worker.worker_id} at {worker.peer_address}"
    try:
        with worker_channel(worker.worker_id, worker.peer_address) as channel:
            stub = peer_pb2_grpc.PeerStub(channel)
            return call_sync(doing, lambda: stub.Branch(request, timeout=TIMEOUT_S + 5))
    except RhinoError as error:
        return error


def _take_back(manager: str, job: str, error: BaseException) -> None:
    """Forgets what was linked. If that fails, the error says what is left to do."""
    try:
        with HandoverClient(manager) as client:
            client.forget_job(job, now=True)
    except UnknownError:
        return  # nothing was linked
    except RhinoError as left:
        error.add_note(f"delete what was branched: rhino forget --job {job} --now ({left})")
