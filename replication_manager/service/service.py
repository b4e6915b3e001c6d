"""The ReplicationManager service: runs the core behind gRPC, and executes its effects."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc.aio

from replication_manager.protocol import events as ev
from replication_manager.service import messages
from replication_manager.service.probe import refuses
from replication_manager.service.runtime import Runtime
from rhino_core.epochs import generation_ceiling
from rhino_core.errors import InvalidRequestError, UnavailableError, UnknownError
from rhino_core.ids import JobSettings, Worker, check_job, ip_of, is_loopback
from rhino_core.journal import Journal
from rhino_core.rpc import audited, convert
from rhino_core.rpc.server import Server
from rhino_core.settings import ManagerSettings, addresses_of
from rhino_core.turns import Turns
from rhino_core.version import PROTOCOL, check_protocol, rhino_version
from rhino_pb import common_pb2, replication_pb2_grpc
from rhino_pb import replication_pb2 as pb

log = logging.getLogger(__name__)
SERVICE_NAME = "rhino.v1.ReplicationManager"
SETTLE_S = 10.0  # after a start with an empty journal, nothing counts as lost for this time
HEARTBEATS_A_SECOND = 1000  # of all workers: more of them send each one less often
HEARTBEATS_OF_A_LEASE = 5  # at least
REPORTS_AT_ONCE = 20  # of a heartbeat: one with more waits until others have had their turn
GROUPS_AT_ONCE = 100  # that are described before others have their turn
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ReplicationService(replication_pb2_grpc.ReplicationManagerServicer):
    """Attach to a server, start the server, then `run`. Needs a running event loop.

    The methods of the service are for callers on the network. Callers in this process use `runtime` too.
    """

    def __init__(self, journal: Journal, settings: ManagerSettings, turns: Turns | None = None) -> None:
        """`turns`: of all services in this process."""
        self._settings = settings
        self._journal = journal
        self._witnesses = tuple(addresses_of(settings.witnesses)) if settings.witnesses else ()
        self._turns = turns or Turns()
        self._loop = asyncio.get_running_loop()
        self.runtime = Runtime(journal, settings)
        self.core = self.runtime.core
        # Until then workers may exist that no one has named. After that the journal names them.
        self._settled_at = self._loop.time() + (SETTLE_S if journal.fresh else 0.0)
        self._settling = self._loop.call_later(SETTLE_S, journal.settle) if journal.fresh else None
        self._streams: Counter[tuple[str, str]] = Counter()  # open heartbeat streams by (worker, process)
        self._probes: set[asyncio.Task[None]] = set()

    def counted_witnesses(self) -> dict[str, int]:
        silent = len(self._journal.silent_witnesses)
        return {"answering": len(self._witnesses) - silent, "silent": silent}

    def attach(self, server: Server) -> None:
        server.add(replication_pb2_grpc.add_ReplicationManagerServicer_to_server, self, SERVICE_NAME)

    async def run(self) -> None:
        """Expires leases until cancelled. Raises the error that broke the journal: the process must then end."""
        try:
            await self.runtime.run()
        finally:
            if self._settling is not None:
                self._settling.cancel()
            for probe in self._probes:
                probe.cancel()

    def handle(self, event: ev.Event) -> None:
        """Handles an event of a caller in this process, with all its effects. Raises the refusals of the core."""
        self.runtime.handle(event)

    # ---------------------------------------------------------------- sidecars

    async def Register(self, request: pb.RegisterRequest, context: Context) -> pb.RegisterReply:
        check_protocol(f"sidecar {request.worker.worker_id!r}", request.protocol, here="the manager")
        _check_claims(request)
        _check_address(request.worker, context.peer())
        worker, former = convert.worker_of(request.worker), self.core.membership.records.get(request.worker.worker_id)
        known_as = former.worker if former is not None else None
        self.handle(
            ev.Registered(
                worker=worker,
                process_id=request.process_id,
                highest_epoch=convert.epoch_of(request.highest_epoch),
                reports=tuple(messages.report_of(report) for report in request.groups),
                disk=convert.disk_of(request.disk),
                disk_message=request.disk_message,
                known=tuple(convert.worker_of(worker) for worker in request.known),
                version=request.rhino_version,
            )
        )
        if worker != known_as:
            audited.note(former=f"{known_as.peer_address} {known_as.incarnation}" if known_as is not None else "")
        return pb.RegisterReply(
            generation=self.core.generation,
            heartbeat_interval_s=self._interval_s(),
            lease_s=self._settings.lease_s,
            protocol=PROTOCOL,
            lease=self.runtime.leases.grant(request.worker.worker_id),
            archive=self._settings.archive,
        )

    async def RegisterInParts(
        self, request_iterator: AsyncIterator[pb.RegisterPart], context: Context
    ) -> pb.RegisterReply:
        whole = await anext(request_iterator, pb.RegisterPart())
        if not whole.HasField("request"):
            raise InvalidRequestError("a registration in parts has ended before it was complete")
        return await self.Register(whole.request, context)

    def _interval_s(self) -> float:
        """Between two heartbeats of a worker."""
        most_s = self._settings.lease_s / HEARTBEATS_OF_A_LEASE
        shared_s = min(len(self.core.membership.records) / HEARTBEATS_A_SECOND, most_s)
        return max(self._settings.heartbeat_interval_s, shared_s)

    async def Heartbeat(
        self, request_iterator: AsyncIterator[pb.HeartbeatRequest], context: Context
    ) -> AsyncIterator[pb.HeartbeatReply]:
        worker_id = process_id = ""
        try:
            async for request in request_iterator:
                self.runtime.leases.check(request.worker_id, request.lease)
                if worker_id not in ("", request.worker_id):
                    raise InvalidRequestError(f"a heartbeat of {request.worker_id!r} in the stream of {worker_id!r}")
                if not worker_id:
                    process_id = self._process_of(request.worker_id)
                    worker_id = request.worker_id
                    self._streams[worker_id, process_id] += 1
                if len(request.changed) > REPORTS_AT_ONCE:
                    self.handle(messages.beat_of(request, ()))  # the lease goes on while the reports wait
                    await self._turns.take()
                    self.runtime.leases.check(request.worker_id, request.lease)  # another process may have registered
                beat = messages.beat_of(request, request.changed)
                self.handle(beat)
                self.runtime.audience.reported(worker_id, (report.group for report in beat.changed))
                if request.HasField("scrub"):
                    self.runtime.scrubs[worker_id] = request.scrub
                if request.leaving:
                    self.runtime.post(ev.Leaving(worker_id, process_id))
                    self.runtime.leases.end(worker_id)
                    return
                yield pb.HeartbeatReply(lease_s=self._settings.lease_s)
        finally:
            if worker_id:
                self._stream_ended(worker_id, process_id)

    def _stream_ended(self, worker_id: str, process_id: str) -> None:
        """Suspects a worker when the last stream of its process has ended. A process may open a new stream before."""
        self._streams[worker_id, process_id] -= 1
        if self._streams[worker_id, process_id] > 0:
            return
        del self._streams[worker_id, process_id]
        self.runtime.post(ev.StreamBroken(worker_id, process_id))
        if record := self.core.membership.records.get(worker_id):
            probe = self._loop.create_task(self._probe(record.worker, process_id), name=f"probe of {worker_id}")
            self._probes.add(probe)
            probe.add_done_callback(self._probes.discard)

    async def _probe(self, worker: Worker, process_id: str) -> None:
        if await refuses(worker.peer_address):
            log.info("process has ended", extra={"worker": worker.worker_id})
            self.runtime.post(ev.Refused(worker.worker_id, process_id))

    def _process_of(self, worker_id: str) -> str:
        record = self.core.membership.records.get(worker_id)
        if record is None or not record.process_id or record.left:  # also for a worker that only the journal knows
            raise UnavailableError(f"worker {worker_id!r} is not registered: register first")
        return record.process_id

    async def WatchGroups(self, request: pb.WatchGroupsRequest, context: Context) -> AsyncIterator[pb.GroupUpdate]:
        self.runtime.leases.check(request.worker_id, request.lease)
        watcher = self.runtime.audience.open(request.worker_id)
        try:
            snapshot = watcher.snapshot()
            snapshot.settling_s = max(0.0, self._settled_at - self._loop.time())
            yield snapshot
            while not watcher.ended:
                yield await watcher.next()
        finally:
            self.runtime.audience.close(watcher)

    async def ResolveGroup(self, request: pb.ResolveGroupRequest, context: Context) -> pb.ResolveGroupReply:
        self.runtime.leases.check(request.worker_id, request.lease)
        group = convert.group_of(request.group)
        if request.existing_only and group not in self.core.groups:
            raise UnknownError(f"group {group}: there is none, and it was not to be made")
        settings = convert.settings_of(request.settings)
        operator = request.branch_operator if request.HasField("branch_operator") else group.operator
        branch_of = group._replace(job=request.branch_of, operator=operator) if request.branch_of else None
        self.handle(ev.Resolve(group, request.worker_id, settings, branch_of))
        self.runtime.audience.resolved(request.worker_id, group)
        return pb.ResolveGroupReply(
            group=convert.replica_group_to_pb(self.core.groups[group]),
            user_refused=bool(request.user) and not self.core.may_use(group, request.user),
            holders=self.core.may_hold(group) if request.with_holders else (),
        )

    # ---------------------------------------------------------------- people

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersReply:
        now, scrubs = self._loop.time(), self.runtime.scrubs
        records = sorted(self.core.membership.records.values(), key=lambda r: r.worker.worker_id)
        return pb.ListWorkersReply(
            rhino_version=rhino_version(),
            insecure=self._settings.insecure,
            workers=[
                messages.worker_status(self.core, record, scrubs.get(record.worker.worker_id), now)
                for record in records
            ],
            generation=self.core.generation,
            witness_addresses=self._witnesses,
            silent_witness_addresses=self._journal.silent_witnesses,
        )

    async def DescribeGroups(self, request: pb.DescribeGroupsRequest, context: Context) -> pb.DescribeGroupsReply:
        """Heartbeats are answered meanwhile: there may be 100 000 groups, and each is described as it is then."""
        reply = pb.DescribeGroupsReply()
        asked = sorted(self.core.of_job(request.job) if request.job else self.core.groups)
        for number, name in enumerate(asked, start=1):
            group = self.core.groups.get(name)
            if group is not None:
                reply.groups.append(messages.group_status(self.core, group))
            if number % GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return reply

    # ---------------------------------------------------------------- handover manager, in this process

    def name_settings(self, job: str, settings: JobSettings) -> None:
        """Applies the settings of the job's driver.

        Raises PreconditionError for a setting that cannot change.
        """
        before = self.core.settings_of(job)
        self.handle(ev.SettingsNamed(job, settings))
        if before != (now := self.core.settings_of(job)):
            log.info("settings changed", extra={"job": job, "before": str(before), "now": str(now)})

    def forget_job(self, job: str, *, dry_run: bool) -> common_pb2.ForgetJobReply:
        """Forgets a job. The job must not run: the caller has checked this.

        Raises UnknownError, and InvalidRequestError for a malformed query id.
        """
        usage = messages.job_usage(self.core, check_job(job))
        if not dry_run:
            self.handle(ev.JobForgotten(job))
        elif not usage.groups and not usage.workers:
            raise UnknownError(f"job {job!r}: no worker stores anything of it")
        return usage

    def forget_worker(self, worker_id: str, *, dry_run: bool) -> common_pb2.ForgetWorkerReply:
        """Forgets a worker. Raises UnknownError, and PreconditionError unless the worker has ended."""
        usage = messages.worker_usage(self.core, worker_id)
        record = self.core.membership.records.get(worker_id)
        if not dry_run or record is None or not record.ended:  # a dry run is refused too
            self.handle(ev.WorkerForgotten(worker_id))
        return usage


def _check_address(worker: common_pb2.Worker, peer: str) -> None:
    """Raises InvalidRequestError for an address that has another meaning on each machine.

    Manager and sidecars connect to it. With such an address they would connect to services of their own machines, or to
    the metadata service of a cloud. `peer`: the caller, as gRPC writes it.
    """
    host = worker.peer_address.rpartition(":")[0]
    found = ip_of(host)
    local = found is not None and (found.is_link_local or found.is_unspecified or found.is_multicast)
    caller = peer.partition(":")[2].rpartition(":")[0]
    if local or (is_loopback(host) and not is_loopback(unquote(caller))):
        raise InvalidRequestError(
            f"worker {worker.worker_id!r} registers {worker.peer_address}, which others cannot use: give its sidecar "
            "--listen or --advertise with an address that the other nodes reach"
        )


def _check_claims(request: pb.RegisterRequest) -> None:
    """Raises InvalidRequestError for an epoch that no manager can have issued.

    The manager would exceed such an epoch, and older sidecars would then refuse all its epochs.
    """
    claimed = max((request.highest_epoch, *(report.epoch for report in request.groups)), key=lambda e: e.generation)
    if claimed.generation > (most := generation_ceiling()):
        raise InvalidRequestError(
            f"worker {request.worker.worker_id!r} claims to have seen generation {claimed.generation}: must be at most "
            f"{most}, ten years from now"
        )
