"""Asks workers to make stores of a new query out of those of another one: for branches and restructured queries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rhino.client.connection import manager_channel, worker_channel
from rhino.client.handover_client import HandoverClient
from rhino_core import failpoints
from rhino_core.errors import PreconditionError, RhinoError, UnavailableError, UnknownError
from rhino_core.ids import GroupId, StoreId, StoreVersion, Worker
from rhino_core.rpc import convert
from rhino_core.rpc.channel import CALL_S_MAX, call_sync
from rhino_pb import peer_pb2, peer_pb2_grpc, replication_pb2, replication_pb2_grpc

TIMEOUT_S = 60.0  # of a call to the manager; and after so long without progress a worker ends a call that sends state
AT_ONCE = 16
Holders = Mapping[GroupId, Sequence[Worker]]
Item = peer_pb2.StoreLink | peer_pb2.EmptyStore  # of a request to make stores
Progress = Callable[[str, int, int, int], None]  # what is done, number of stores so far, all stores, bytes so far


@dataclass(frozen=True, slots=True)
class Made:
    """The links made by all workers together. `workers`: ids of the owners."""

    files: int = 0
    bytes: int = 0
    workers: frozenset[str] = frozenset()

    def __add__(self, more: Made) -> Made:
        return Made(self.files + more.files, self.bytes + more.bytes, self.workers | more.workers)


def holders_of(manager: str, job: str) -> Holders:
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


def check_stored(checkpoint: Path, job: str, groups: Collection[GroupId], holders: Holders) -> None:
    """Raises PreconditionError for a query without Rhino, and UnavailableError if nobody live holds a group."""
    if unknown := sorted(set(groups) - holders.keys()):
        raise PreconditionError(
            f"{checkpoint}: no worker stores state of query {job}, such as {unknown[0]}; a query that does not run "
            "with Rhino can be neither branched nor restructured"
        )
    if lost := sorted(group for group in groups if not holders[group]):
        raise UnavailableError(f"group {lost[0]}: no whole member of it is live; try again when one is back")


def ask_all(items: Sequence[tuple[GroupId, Item]], holders: Holders, report: Progress = lambda *_: None) -> Made:
    """Asks one holder of each item's group, and the next one after a failure. Raises the last error."""
    waiting, made, attempt = list(items), Made(), 0
    failure: RhinoError | None = None
    failpoints.hit("branch.links.before")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while waiting:
            by_worker: dict[str, tuple[Worker, list[tuple[GroupId, Item]]]] = {}
            for group, item in waiting:
                found = holders[group]
                if attempt >= len(found):
                    raise failure or UnknownError(f"group {group}: no worker holds it")
                by_worker.setdefault(found[attempt].worker_id, (found[attempt], []))[1].append((group, item))
            waiting, attempt, done = [], attempt + 1, len(items) - len(waiting)
            requests = [
                (asked, pool.submit(_caught, worker, _request_of(item for _, item in asked)))
                for worker, asked in by_worker.values()
            ]
            for asked, call in requests:
                reply = call.result()
                if isinstance(reply, RhinoError):
                    waiting, failure = [*waiting, *asked], reply
                else:
                    made += Made(reply.files, reply.linked_bytes, frozenset({reply.worker.worker_id}))
                    done += len(asked)
                    report("linked", done, len(items), made.bytes)
    failpoints.hit("branch.links.after")
    return made


def link_item(source: StoreVersion, target: StoreId) -> tuple[GroupId, Item]:
    """The version becomes one of the store `target`."""
    version, store = convert.store_version_to_pb(source), convert.store_to_pb(target)
    return source.store.group, peer_pb2.StoreLink(source=version, target=store)


def empty_item(version: StoreVersion, like: GroupId) -> tuple[GroupId, Item]:
    """The version is made without keys, on the worker of the group `like`."""
    message = convert.store_version_to_pb(version)
    return like, peer_pb2.EmptyStore(version=message, like=convert.group_to_pb(like))


def _request_of(asked: Iterable[Item]) -> peer_pb2.BranchRequest:
    request = peer_pb2.BranchRequest(timeout_s=TIMEOUT_S)
    for item in asked:
        if isinstance(item, peer_pb2.StoreLink):
            request.links.append(item)
        else:
            request.empty.append(item)
    return request


def _caught(worker: Worker, request: peer_pb2.BranchRequest) -> peer_pb2.BranchReply | RhinoError:
    try:
        with worker_channel(worker.worker_id, worker.peer_address) as channel:
            stub: peer_pb2_grpc.PeerStub = peer_pb2_grpc.PeerStub(channel)
            doing = f"branch on worker {worker.worker_id} at {worker.peer_address}"
            return call_sync(doing, lambda: stub.Branch(request, timeout=CALL_S_MAX))
    except RhinoError as error:
        return error


def take_back(manager: str, job: str, error: BaseException) -> None:
    """Forgets the new job. If this fails, the error names the rest of the work."""
    try:
        with HandoverClient(manager) as client:
            client.forget_job(job, now=True)
    except UnknownError:
        return  # nothing was made
    except RhinoError as left:
        error.add_note(f"delete what was branched: rhino forget --job {job} --now ({left})")
