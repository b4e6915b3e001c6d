"""The sidecar's side of the replication manager: registration, heartbeats, groups, floors.

A lost manager costs nothing but news: known groups go on working, and this client keeps trying.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from rhino.errors import PreconditionError, RhinoError, UnavailableError
from rhino.ids import Epoch, GroupId, JobSettings, ReplicaGroup, StoreVersion, Worker
from rhino.rpc.channel import aio_channel, call
from rhino.rpc.convert import (
    disk_to_pb,
    epoch_of,
    epoch_to_pb,
    group_of,
    group_to_pb,
    replica_group_of,
    settings_to_pb,
    store_version_of,
    store_version_to_pb,
    worker_of,
    worker_to_pb,
)
from rhino.rpc.status import error_of
from rhino_pb import replication_pb2, replication_pb2_grpc
from worker_runtime.core import events as ev
from worker_runtime.figures import Figures, resident_bytes
from worker_runtime.known_workers import KnownWorkers
from worker_runtime.replication import Replication
from worker_runtime.rpc.convert import lag_to_pb, scrub_to_pb
from worker_runtime.rpc.heartbeats import Heartbeats
from worker_runtime.scrubber import Scrubber

log = logging.getLogger(__name__)
CALL_TIMEOUT_S = 5.0
STREAM_TIMEOUT_S = 30 * 24 * 3600.0  # streams live as long as both sides; keepalive finds a dead one
RETRY_S = (0.1, 2.0)  # first and longest pause between attempts
RESOLVE_RETRY_S = 10.0  # a writer waits this long for a manager that is away, or for more workers
RESOLVE_PAUSE_S = 0.2


class ManagerClient:
    """Keeps the sidecar registered; `Groups` of `Replication`.

    `on_floors` and `on_workers` are called with what the manager says about floors and live workers.
    """

    def __init__(
        self,
        replication: Replication,
        figures: Figures,
        scrubber: Scrubber,
        address: str,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.address = address
        self.connected = False  # registered, and told who is alive
        self.ready = asyncio.Event()  # connected once
        self.on_floors: Callable[[list[StoreVersion]], None] = lambda floors: None
        self.on_workers: Callable[[list[Worker]], None] = lambda workers: None
        self._replication = replication
        self._figures = figures
        self._scrubber = scrubber
        self._tasks = tasks
        self._channel = aio_channel(address)
        self._stub = replication_pb2_grpc.ReplicationManagerStub(self._channel)
        self._process_id = str(uuid.uuid4())
        self._live: list[Worker] = []
        self._absent: list[Worker] = []
        self._known = KnownWorkers(replication.store)
        self._settled_at = 0.0  # monotonic seconds
        self._changed: set[GroupId] = set()
        self._reported: dict[GroupId, tuple[Epoch, bool]] = {}
        self._beats = Heartbeats(address, self._heartbeat)
        self._settings: dict[str, JobSettings] = {}
        self._resolving: dict[GroupId, asyncio.Task[ReplicaGroup]] = {}
        self._asking: dict[GroupId, asyncio.Task[None]] = {}

    # ------------------------------------------------------------ what others ask

    def live_workers(self) -> list[Worker]:
        """As the manager said last."""
        return self._live

    def absent_workers(self) -> list[Worker]:
        """Workers that are not live but may hold versions, as the manager said last."""
        return self._absent

    @property
    def settling(self) -> bool:
        """The manager has begun with an empty journal just now: it may not have heard of every worker yet."""
        return asyncio.get_running_loop().time() < self._settled_at

    def current(self, worker: Worker) -> Worker:
        """The worker as it lives now: a restarted sidecar may have another address than its groups know."""
        return next((live for live in self._live if live.worker_id == worker.worker_id), worker)

    def changed(self, group: GroupId) -> None:
        """The report on this group goes with the next heartbeat; at once if its epoch or wholeness has changed."""
        self._changed.add(group)
        if self._reported.get(group) != self._account(group):
            self._beats.beat_now()

    def ask(self, group: GroupId) -> None:
        """Fetches the group as it is now, however long the manager is away; the machine adopts it."""
        if group not in self._asking:
            task = self._tasks.create_task(self._ask(group), name=f"ask for group {group}")
            self._asking[group] = task
            task.add_done_callback(lambda _: self._asking.pop(group, None))

    async def known(self, group: GroupId, settings: JobSettings) -> ReplicaGroup:
        """The group, from memory or from the manager: its first use makes this worker its owner.

        Waits a while for a manager that is away, and for workers that are only just starting.
        Raises UnavailableError, PreconditionError (too few workers).
        """
        self.require_unforgotten(group)
        self._settings[group.job] = settings
        deadline = asyncio.get_running_loop().time() + RESOLVE_RETRY_S
        while (found := self._replication.group(group)) is None:
            try:
                return await self._resolve(group, settings)
            except (UnavailableError, PreconditionError):
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(RESOLVE_PAUSE_S)
        return found

    async def name(self, group: GroupId, settings: JobSettings) -> None:
        """As `known`, for somebody who can do without: a manager that is away is asked in the background."""
        self._settings[group.job] = settings
        if self._replication.group(group) is None:
            if self.connected:
                await self._resolve(group, settings)
            else:
                self.ask(group)

    def require_unforgotten(self, group: GroupId) -> None:
        """Raises PreconditionError for a group of a forgotten job."""
        if self._replication.machine.forgotten(group):
            raise PreconditionError(f"job {group.job} was forgotten: start the query with a new checkpoint")

    async def leave(self) -> None:
        """Tells the manager that this worker goes, if it can be reached."""
        await self._beats.leave(wait=self.connected)

    async def close(self) -> None:
        await self._channel.close(None)

    # ------------------------------------------------------------ groups

    async def _resolve(self, group: GroupId, settings: JobSettings) -> ReplicaGroup:
        """Asks the manager, once for all that wait for the same group."""
        task = self._resolving.get(group)
        if task is None:
            task = asyncio.create_task(self._resolve_once(group, settings), name=f"resolve {group}")
            self._resolving[group] = task
            task.add_done_callback(lambda _: self._resolving.pop(group, None))
        return await asyncio.shield(task)

    async def _resolve_once(self, group: GroupId, settings: JobSettings) -> ReplicaGroup:
        request = replication_pb2.ResolveGroupRequest(
            group=group_to_pb(group), worker_id=self._replication.me.worker_id, settings=settings_to_pb(settings)
        )
        reply = await call(
            f"group {group} from the manager at {self.address}",
            lambda: self._stub.ResolveGroup(request, timeout=CALL_TIMEOUT_S),
        )
        found = replica_group_of(reply.group)
        self._replication.post(ev.GroupAdopted(found))
        return found

    async def _ask(self, group: GroupId) -> None:
        pause = RETRY_S[0]
        while not self._replication.machine.forgotten(group):
            known = self._replication.group(group)
            settings = known.settings if known else self._settings.get(group.job, JobSettings())
            try:
                found = await self._resolve(group, settings)
                if found.epoch >= self._replication.machine.epoch(group):
                    return
            except RhinoError as error:
                log.warning("cannot get a group", extra={"group": str(group), "error": str(error)})
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_S[1])
            known = self._replication.group(group)
            if known is not None and known.epoch >= self._replication.machine.epoch(group):
                return

    # ------------------------------------------------------------ registration

    async def run(self) -> None:
        """Until cancelled or gone: registers, beats and watches; begins anew whenever one of these fails."""
        pause = RETRY_S[0]
        while not self._beats.leaving:
            try:
                await self._register()
                pause = RETRY_S[0]
                beats = self._stub.Heartbeat(timeout=STREAM_TIMEOUT_S)  # type: ignore[call-arg]  # written below
                await _first_end(self._beats.run(beats), self._watch())
            except RhinoError as error:
                log.warning(
                    "no manager; known groups go on working",
                    extra={"manager": self.address, "error": str(error), "retry_in_s": pause},
                )
            finally:
                self.connected = False
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_S[1])

    async def _register(self) -> None:
        store, machine = self._replication.store, self._replication.machine
        groups = sorted({*store.catalogue.groups(), *machine.groups()})
        disk, disk_message = store.disk.state()
        request = replication_pb2.RegisterRequest(
            worker=worker_to_pb(self._replication.me),
            capacity_bytes=store.capacity_bytes(),
            highest_epoch=epoch_to_pb(machine.highest_epoch()),
            groups=[self._report(group) for group in groups],
            process_id=self._process_id,
            disk=disk_to_pb(disk),
            disk_message=disk_message,
            known=[worker_to_pb(worker) for worker in self._known.all()],
        )
        reply = await call(
            f"registration at the manager at {self.address}",
            lambda: self._stub.Register(request, timeout=CALL_TIMEOUT_S),
        )
        self._beats.interval_s = reply.heartbeat_interval_s or self._beats.interval_s
        log.info("registered", extra={"manager": self.address, "generation": reply.generation, "groups": len(groups)})

    def _account(self, group: GroupId) -> tuple[Epoch, bool]:
        machine = self._replication.machine
        adopted = machine.group(group)
        return adopted.epoch if adopted else machine.epoch(group), machine.whole(group)

    def _report(self, group: GroupId) -> replication_pb2.GroupReport:
        store = self._replication.store
        epoch, whole = self._reported[group] = self._account(group)
        return replication_pb2.GroupReport(
            group=group_to_pb(group),
            epoch=epoch_to_pb(epoch),
            whole=whole,
            stored_bytes=store.stored_bytes(group),
            stored_files=sum(len(files) for files in store.catalogue.stores(group).values()),
            newest_held=[store_version_to_pb(version) for version in store.newest_held(group)],
            newest_written=[store_version_to_pb(version) for version in store.newest_written(group)],
        )

    # ------------------------------------------------------------ heartbeats

    def _heartbeat(self, farewell: bool) -> replication_pb2.HeartbeatRequest:
        store, me = self._replication.store, self._replication.me
        changed, self._changed = self._changed, set()
        disk, disk_message = store.disk.state()
        return replication_pb2.HeartbeatRequest(
            worker_id=me.worker_id,
            incarnation=me.incarnation,
            stored_bytes=store.stored_bytes(),
            free_bytes=store.free_bytes(),
            changed=[self._report(group) for group in sorted(changed)],
            resident_bytes_max=resident_bytes()[1],
            replicated_bytes=self._figures.received_bytes,
            leaving=farewell,
            scrub=scrub_to_pb(self._scrubber.status()),
            disk=disk_to_pb(disk),
            disk_message=disk_message,
            lags=[lag_to_pb(lag) for lag in self._replication.machine.lags(asyncio.get_running_loop().time())],
        )

    # ------------------------------------------------------------ news

    async def _watch(self) -> None:
        me = self._replication.me
        request = replication_pb2.WatchGroupsRequest(worker_id=me.worker_id, incarnation=me.incarnation)
        stream = self._stub.WatchGroups(request, timeout=STREAM_TIMEOUT_S)
        try:
            async for update in stream:
                self._apply(update)
        except grpc.RpcError as error:
            raise error_of(error, f"news from the manager at {self.address}") from error
        finally:
            stream.cancel()
        raise UnavailableError(f"news from the manager at {self.address}: the stream has ended")

    def _apply(self, update: replication_pb2.GroupUpdate) -> None:
        self._live = [worker_of(worker) for worker in update.workers]
        self._absent = [worker_of(worker) for worker in update.absent]
        self._known.note([*self._live, *self._absent])
        self.on_workers(self._live)
        for forgotten in update.forgotten:
            self._replication.post(ev.JobForgotten(forgotten.job, epoch_of(forgotten.fence)))
        groups = [replica_group_of(group) for group in update.groups]
        left = {group_of(group) for group in update.left}
        if update.snapshot:
            self._settled_at = asyncio.get_running_loop().time() + update.settling_s
            left |= set(self._replication.machine.groups()) - {group.group for group in groups}
        for group in groups:
            self._replication.post(ev.GroupAdopted(group))
        for gone in sorted(left):
            self._replication.post(ev.GroupLeft(gone))
        if update.floors:
            self.on_floors([store_version_of(floor.version) for floor in update.floors])
        self.connected = True
        self.ready.set()


async def _first_end(*parts: Awaitable[None]) -> None:
    """Runs all; the first that ends, ends the others, and its error is raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
