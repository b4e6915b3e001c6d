"""The sidecar's client of the replication manager: registration, heartbeats, groups, floors.

Without a manager only updates are missing: known groups continue to work, and this client keeps trying.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection

import grpc
import grpc.aio

from rhino_core import retry
from rhino_core.descriptors import LogLimits
from rhino_core.errors import AlreadyThereError, PreconditionError, RhinoError, UnavailableError, UnknownError
from rhino_core.ids import Epoch, GroupId, JobSettings, ReplicaGroup, StoreVersion, Worker
from rhino_core.rpc.channel import CALL_S_MAX, RenewedChannel, call, several
from rhino_core.rpc.convert import (
    disk_to_pb,
    epoch_of,
    epoch_to_pb,
    group_of,
    group_to_pb,
    labelled_worker_to_pb,
    replica_group_of,
    settings_to_pb,
    store_version_of,
    store_version_to_pb,
    worker_of,
    worker_to_pb,
)
from rhino_core.rpc.gate import checked
from rhino_core.rpc.parts import PART_BYTES, in_parts
from rhino_core.rpc.status import error_of
from rhino_core.version import PROTOCOL, check_protocol, rhino_version
from rhino_pb import replication_pb2, replication_pb2_grpc
from worker_runtime.codec import lag_to_pb, scrub_to_pb
from worker_runtime.manager_link.directory import Directory
from worker_runtime.manager_link.heartbeats import Heartbeats
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.watching import events_of_update
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics, resident_bytes
from worker_runtime.storage.keeping.scrub_round import ScrubRound

log = logging.getLogger(__name__)
CALL_TIMEOUT_S = 5.0
# Of one heartbeat, which the manager accepts up to 4 MiB. Further reports follow at once. Of many lags, the oldest are
# told.
REPORTS_MAX = 1000
LAGS_MAX = 5000


class ManagerClient:
    """Keeps the sidecar registered. `Groups` of `Replication`.

    `on_floors` receives the manager's floors. `directory` receives the workers named by it.
    """

    def __init__(
        self,
        replication: Replication,
        statistics: Statistics,
        scrub_status: Callable[[], ScrubRound],
        directory: Directory,
        address: str,
        channel: RenewedChannel,
        tasks: asyncio.TaskGroup,
        on_floors: Callable[[list[StoreVersion]], None],
    ) -> None:
        self.address = address
        self.connected = False  # registered, and informed about live workers
        self.ready = asyncio.Event()  # set after the first connection
        self.archive_url = ""  # of the archive of state, by the newest registration; empty: none
        self._on_floors = on_floors
        self._replication = replication
        self._statistics = statistics
        self._scrub_status = scrub_status
        self._directory = directory
        self._tasks = tasks
        self._channel = channel
        self._process_id = str(uuid.uuid4())
        self._lease = b""
        self._settled_at = 0.0  # monotonic seconds
        self._changed: set[GroupId] = set()
        self._reported: dict[GroupId, tuple[Epoch, bool]] = {}
        self._beats = Heartbeats(address, self._heartbeat)
        self._settings: dict[str, JobSettings] = {}
        self._resolving: dict[
            tuple[GroupId, bool, GroupId | None], asyncio.Task[replication_pb2.ResolveGroupReply]
        ] = {}
        self._asking: dict[GroupId, asyncio.Task[None]] = {}
        self._outsiders = LogLimits(time.monotonic)
        self._writers: dict[tuple[GroupId, str], asyncio.Task[None]] = {}

    @property
    def _stub(self) -> replication_pb2_grpc.ReplicationManagerAsyncStub:
        return replication_pb2_grpc.ReplicationManagerStub(self._channel.current())

    # ------------------------------------------------------------ queries and requests

    def live_workers(self) -> list[Worker]:
        """Live workers, according to the manager's latest update."""
        return self._directory.live

    def absent_workers(self) -> list[Worker]:
        """Absent workers that may hold versions, according to the manager's latest update."""
        return self._directory.absent

    @property
    def settling(self) -> bool:
        """Whether the manager has just started with an empty journal: it may not know every worker yet."""
        return asyncio.get_running_loop().time() < self._settled_at

    def changed(self, group: GroupId) -> None:
        """Reports this group with the next heartbeat, or at once if its epoch or wholeness has changed."""
        self._changed.add(group)
        if self._reported.get(group) != self._account(group):
            self._beats.beat_now()

    def ask(self, group: GroupId) -> None:
        """Fetches the current group, however long the manager is unreachable. The machine adopts it."""
        if group not in self._asking:
            task = self._tasks.create_task(self._ask(group), name=f"ask for group {group}")
            self._asking[group] = task
            task.add_done_callback(lambda _: self._asking.pop(group, None))

    def ask_writer(self, group: GroupId, worker_id: str) -> None:
        """Asks whether a worker outside the group may write it. Without an answer its files are refused."""
        key = group, worker_id
        if key not in self._writers:
            task = self._tasks.create_task(self._ask_writer(*key), name=f"ask for writer {worker_id} of {group}")
            self._writers[key] = task
            task.add_done_callback(lambda _: self._writers.pop(key, None))

    async def _ask_writer(self, group: GroupId, worker_id: str) -> None:
        try:
            allowed = await self.may_use(group, worker_id)
        except RhinoError as error:
            log.warning("cannot ask for a writer", extra={"peer": worker_id, "group": str(group), "error": str(error)})
        else:
            self._replication.post(ev.WriterNamed(group, worker_id, allowed))

    async def may_use(self, group: GroupId, worker_id: str) -> bool:
        """Whether the worker is a member of the group, or executors of its query run there, according to the manager.

        Raises UnavailableError, and UnknownError for an unknown group.
        """
        reply = await self._resolved(group, JobSettings(), existing_only=True, user=worker_id)
        if reply.user_refused and (left_out := self._outsiders.due(worker_id)) is not None:
            log.warning(
                "a worker that is no member, and has no executor of the query, asks for a group's files or sends some",
                extra={"peer": worker_id, "group": str(group), "times_before": left_out},
            )
        return not reply.user_refused

    async def may_hold(self, group: GroupId) -> frozenset[str] | None:
        """Ids of workers that may have files of the group, live or absent. None: not known, so any worker may."""
        if not self.connected:
            return None
        try:
            reply = await self._resolved(group, JobSettings(), existing_only=True, with_holders=True)
        except RhinoError as error:
            log.warning("cannot ask who may have files", extra={"group": str(group), "error": str(error)})
            return None
        return frozenset(reply.holders) or None

    async def known(self, group: GroupId, settings: JobSettings, branch_of: GroupId | None = None) -> ReplicaGroup:
        """The group, from memory or from the manager. The first worker to name a group becomes its owner.

        `branch_of`: a group of another job with the same files. Its members are preferred for a new group. Waits some
        time for an unreachable manager, and for starting workers. Raises UnavailableError, PreconditionError (too few
        workers).
        """
        self.require_unforgotten(group)
        self._settings[group.job] = settings

        async def resolve() -> ReplicaGroup:
            known = self._replication.group(group)
            return known or await self._resolve(group, settings, branch_of=branch_of)

        known = self._replication.group(group)
        found: ReplicaGroup = await retry.until_resolved()(resolve) if known is None else known
        return found

    async def name(self, group: GroupId, settings: JobSettings) -> None:
        """Like `known`, for callers that do not need the group: an unreachable manager is asked in the background."""
        self._settings[group.job] = settings
        if self._replication.group(group) is None:
            if self.connected:
                await self._resolve(group, settings)
            else:
                self.ask(group)

    def require_unforgotten(self, group: GroupId) -> None:
        """Raises PreconditionError for a group of a forgotten job."""
        if self._replication.view.forgotten(group):
            raise PreconditionError(f"job {group.job} was forgotten: start the query with a new checkpoint")

    async def leave(self) -> None:
        """Sends the farewell to the manager, if it can be reached."""
        await self._beats.leave(wait=self.connected)

    async def close(self) -> None:
        await self._channel.close()

    # ------------------------------------------------------------ groups

    async def _resolve(
        self, group: GroupId, settings: JobSettings, *, existing_only: bool = False, branch_of: GroupId | None = None
    ) -> ReplicaGroup:
        """Asks the manager, once for all callers with the same question."""
        task = self._resolving.get(question := (group, existing_only, branch_of))
        if task is None:
            resolving = self._resolved(group, settings, existing_only=existing_only, branch_of=branch_of)
            task = asyncio.create_task(resolving, name=f"resolve {group}")
            self._resolving[question] = task
            task.add_done_callback(lambda _: self._resolving.pop(question, None))
        return replica_group_of((await asyncio.shield(task)).group)

    async def _resolved(
        self,
        group: GroupId,
        settings: JobSettings,
        *,
        existing_only: bool,
        branch_of: GroupId | None = None,
        user: str = "",
        with_holders: bool = False,
    ) -> replication_pb2.ResolveGroupReply:
        """The manager's reply. The machine adopts the group."""
        request = replication_pb2.ResolveGroupRequest(
            group=group_to_pb(group),
            worker_id=self._replication.me.worker_id,
            settings=settings_to_pb(settings),
            existing_only=existing_only,
            branch_of=branch_of.job if branch_of else "",
            branch_operator=branch_of.operator if branch_of and branch_of.operator != group.operator else None,
            lease=self._lease,
            user=user,
            with_holders=with_holders,
        )
        reply = await call(
            f"group {group} from the manager at {self.address}",
            lambda: self._stub.ResolveGroup(request, timeout=CALL_TIMEOUT_S),
        )
        self._replication.post(ev.GroupAdopted(replica_group_of(reply.group)))
        return reply

    async def _ask(self, group: GroupId) -> None:
        pauses = retry.MANAGER.pauses()
        while not self._replication.view.forgotten(group):
            known = self._replication.group(group)
            mine = known.settings if known else self._settings.get(group.job)
            try:
                # A peer has named this group, and no executor here: perhaps the job does not exist at all.
                found = await self._resolve(group, mine or JobSettings(), existing_only=mine is None)
                if found.epoch >= self._replication.view.epoch(group):
                    return
            except UnknownError as error:
                log.warning("a peer has named a group that the manager does not know", extra={"error": str(error)})
                return
            except RhinoError as error:
                log.warning("cannot get a group", extra={"group": str(group), "error": str(error)})
            await pauses.sleep()
            known = self._replication.group(group)
            if known is not None and known.epoch >= self._replication.view.epoch(group):
                return

    # ------------------------------------------------------------ registration

    async def run(self) -> None:
        """Register, send heartbeats and watch groups, until cancelled or gone. Restart whenever one of these fails."""
        pauses, complaints = retry.MANAGER.pauses(), LogLimits(time.monotonic)
        while not self._beats.leaving:
            if several(self.address):  # one of the names may have another address by now
                await self._channel.renew()
            try:
                await self._register()
                pauses.reset()
                beats = self._stub.Heartbeat(timeout=CALL_S_MAX)  # type: ignore[call-arg]  # written below
                await _first_end(self._beats.run(beats), self._watch())
            except (RhinoError, OSError) as error:
                if complaints.due(str(error)) is not None:
                    log.warning(_headline(error), extra={"manager": self.address, "error": str(error)})
            finally:
                self.connected = False
            await pauses.sleep()

    async def _register(self) -> None:
        store, view = self._replication.store, self._replication.view
        groups = sorted({*store.catalogue.groups(), *view.groups()})
        disk, disk_message = store.space.state()
        request = replication_pb2.RegisterRequest(
            worker=labelled_worker_to_pb(self._replication.me),
            capacity_bytes=store.disk.capacity_bytes(),
            highest_epoch=epoch_to_pb(view.highest_epoch()),
            groups=[self._report(group) for group in groups],
            process_id=self._process_id,
            disk=disk_to_pb(disk),
            disk_message=disk_message,
            known=[worker_to_pb(worker) for worker in self._directory.kept()],
            protocol=PROTOCOL,
            rhino_version=rhino_version(),
        )
        reply = await call(f"registration at the manager at {self.address}", lambda: self._sent(request))
        check_protocol(f"the manager at {self.address}", reply.protocol, here=f"sidecar {request.worker.worker_id!r}")
        self._lease = reply.lease
        self.archive_url = reply.archive
        self._beats.interval_s = reply.heartbeat_interval_s or self._beats.interval_s
        log.info("registered", extra={"manager": self.address, "generation": reply.generation, "groups": len(groups)})

    def _sent(self, request: replication_pb2.RegisterRequest) -> Awaitable[replication_pb2.RegisterReply]:
        if request.ByteSize() <= PART_BYTES:
            return self._stub.Register(request, timeout=CALL_TIMEOUT_S)
        parts = in_parts(replication_pb2.RegisterPart(request=request))
        return self._stub.RegisterInParts(parts, timeout=CALL_TIMEOUT_S)

    def _account(self, group: GroupId) -> tuple[Epoch, bool]:
        view = self._replication.view
        adopted = view.group(group)
        return adopted.epoch if adopted else view.epoch(group), view.whole(group)

    def _report(self, group: GroupId) -> replication_pb2.GroupReport:
        store = self._replication.store
        epoch, whole = account = self._account(group)
        stored_files = sum(len(files) for files in store.catalogue.stores(group).values())
        if stored_files or self._replication.view.group(group) is not None:
            self._reported[group] = account
        else:  # nothing of the group is here any more
            self._reported.pop(group, None)
        return replication_pb2.GroupReport(
            group=group_to_pb(group),
            epoch=epoch_to_pb(epoch),
            whole=whole,
            stored_bytes=store.files.stored_bytes(group),
            stored_files=stored_files,
            newest_held=[store_version_to_pb(version) for version in store.files.newest.held(group)],
            newest_written=[store_version_to_pb(version) for version in store.files.newest.written(group)],
        )

    # ------------------------------------------------------------ heartbeats

    def _heartbeat(self, farewell: bool) -> replication_pb2.HeartbeatRequest:
        store, me = self._replication.store, self._replication.me
        changed = sorted(self._changed)[:REPORTS_MAX]
        self._changed.difference_update(changed)
        if self._changed:
            self._beats.beat_now()
        lags = self._replication.view.lags(asyncio.get_running_loop().time())
        disk, disk_message = store.space.state()
        return replication_pb2.HeartbeatRequest(
            worker_id=me.worker_id,
            incarnation=me.incarnation,
            stored_bytes=store.files.stored_bytes(),
            free_bytes=store.disk.free_bytes(),
            changed=[self._report(group) for group in changed],
            resident_bytes_max=resident_bytes()[1],
            replicated_bytes=self._statistics.received_bytes,
            leaving=farewell,
            lease=self._lease,
            scrub=scrub_to_pb(self._scrub_status()),
            disk=disk_to_pb(disk),
            disk_message=disk_message,
            lags=[lag_to_pb(lag) for lag in heapq.nlargest(LAGS_MAX, lags, key=lambda lag: lag.oldest_s)],
        )

    # ------------------------------------------------------------ updates from the manager

    async def _watch(self) -> None:
        me = self._replication.me
        request = replication_pb2.WatchGroupsRequest(
            worker_id=me.worker_id, incarnation=me.incarnation, lease=self._lease
        )
        stream = self._stub.WatchGroups(request, timeout=CALL_S_MAX)
        try:
            async for update in stream:
                self._apply(checked(update, f"news from the manager at {self.address}"))
        except grpc.RpcError as error:
            raise error_of(error, f"news from the manager at {self.address}") from error
        finally:
            stream.cancel()
        raise UnavailableError(f"news from the manager at {self.address}: the stream has ended")

    def _apply(self, update: replication_pb2.GroupUpdate) -> None:
        if not update.workers_unchanged:
            live, absent = ([worker_of(worker) for worker in workers] for workers in (update.workers, update.absent))
            self._directory.update(live, absent)
        groups = [replica_group_of(group) for group in update.groups]
        left = [group_of(group) for group in update.left]
        forgotten = {one.job: epoch_of(one.fence) for one in update.forgotten}
        known = self._replication.view.groups()
        if update.snapshot:
            self._settled_at = asyncio.get_running_loop().time() + update.settling_s
        for event in events_of_update(groups, left, forgotten, known, snapshot=update.snapshot):
            self._replication.post(event)
        if forgotten:
            self._forget(forgotten.keys())
        if update.floors:
            self._on_floors([store_version_of(floor.version) for floor in update.floors])
        self.connected = True
        self.ready.set()

    def _forget(self, jobs: Collection[str]) -> None:
        for job in jobs:
            self._settings.pop(job, None)
        for group in [group for group in self._reported if group.job in jobs]:
            del self._reported[group]


def _headline(error: Exception) -> str:
    if isinstance(error, AlreadyThereError):
        return "not registered: another sidecar has this worker id"
    return "no manager; known groups go on working"


async def _first_end(*parts: Awaitable[None]) -> None:
    """Runs all parts. When the first one ends, ends the others and raises its error, if any."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
