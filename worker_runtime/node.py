"""The parts of one sidecar and their connections."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from rhino_core.descriptors import run_until_cancelled
from rhino_core.errors import InvalidSettingError
from rhino_core.health import Health, Notifier
from rhino_core.ids import Worker
from rhino_core.rpc.channel import RenewedChannel
from rhino_core.rpc.greeting import greeter_path
from rhino_core.rpc.server import Server
from rhino_core.security.audit import AuditLog
from rhino_core.security.transport import Transport
from rhino_core.settings import SidecarSettings
from rhino_pb import peer_pb2_grpc, sidecar_pb2_grpc, witness_pb2_grpc
from worker_runtime.archiving.drilling import Driller
from worker_runtime.archiving.loading import Loader
from worker_runtime.archiving.uploading import Uploader
from worker_runtime.checks import CopiesCheck, SidecarChecks, report
from worker_runtime.fetch.catch_up import Puller
from worker_runtime.fetch.peers import Peers
from worker_runtime.fetch.prepare import Preparer
from worker_runtime.manager_link.client import ManagerClient
from worker_runtime.manager_link.directory import Directory
from worker_runtime.protocol.credit import GrantPool
from worker_runtime.push.alarms import Alarms
from worker_runtime.push.links import Links
from worker_runtime.push.listener import PushListener
from worker_runtime.push.opening import Opening, chosen
from worker_runtime.push.receiver import Receiver
from worker_runtime.replication import Replication
from worker_runtime.services.branching import Brancher
from worker_runtime.services.callers import Callers
from worker_runtime.services.describe import Describer
from worker_runtime.services.greeter import Greeter, allowed_users
from worker_runtime.services.local import SidecarService
from worker_runtime.services.local_socket import LocalSocket
from worker_runtime.services.peer import Answers, PeerService
from worker_runtime.services.witness import WitnessService
from worker_runtime.statistics import Statistics
from worker_runtime.storage.store import Store
from worker_runtime.upkeep.collector import Collector
from worker_runtime.upkeep.excess import ExcessCollector
from worker_runtime.upkeep.flusher import Flusher
from worker_runtime.upkeep.local_folders import LocalFolders
from worker_runtime.upkeep.scrubber import Scrubber

DRAIN_S = 5.0  # time for commits under way when the sidecar is stopped
GRACE_S = 1.0  # time for calls that are still open after that
LOCAL_CALLS_MAX = 1024  # of one executor, a process of our own user
TIDY_S = 10.0  # interval between checks for unneeded connections


class Node:
    """All parts of a sidecar process. Background work runs in `tasks`."""

    def __init__(
        self,
        settings: SidecarSettings,
        store: Store,
        tasks: asyncio.TaskGroup,
        health: Health,
        transport: Transport,
        audit: AuditLog,
    ) -> None:
        self._settings = settings
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self.audit = audit
        self._peer_server = Server(transport=transport, audit=self.audit, reflect=settings.reflection)
        self._local_server = Server(audit=self.audit, reflect=settings.reflection, calls_max=LOCAL_CALLS_MAX)
        self._greeter = _greeter(settings, self.audit)
        self._socket = LocalSocket(settings.socket)
        self._greeter_socket = LocalSocket(greeter_path(settings.socket))
        self.me = self._bind(store)
        self.replication = Replication(self.me, store)
        statistics, grants = Statistics(), GrantPool(settings.memory_limit_bytes, settings.window_bytes)
        self.statistics = statistics
        self.scrubber = Scrubber(self.replication, settings.scrub_period_s, settings.scrub_bytes_per_s)
        directory, self._collector = Directory(self.replication), Collector(self.replication)
        self.manager = ManagerClient(
            self.replication,
            statistics,
            self.scrubber.status,
            directory,
            settings.manager,
            RenewedChannel(settings.manager, transport),
            tasks,
            self._collector.floors,
        )
        self._health = health
        self._notifier = Notifier()
        self._registered = False  # with the manager, since the start
        copies = CopiesCheck(self.me.worker_id, self.replication.view, self.manager.ready.is_set, time.monotonic)
        self._checks = SidecarChecks(self._socket, store, self.manager, copies)
        self._peers = Peers(self.replication, statistics, directory, transport)
        encryption = chosen(transport, settings.push_encryption)
        opening, alarms = Opening(transport, encryption), Alarms(statistics, audit, encryption)
        self._links = Links(self.replication, statistics, directory, opening, settings.chunk_bytes, tasks, alarms)
        self._flusher = Flusher(store.layout.root, store.index, store.arrivals)
        self._excess = ExcessCollector(self.replication, self._peers, settings.excess_grace_s, tasks)
        self._receiver = receiver = Receiver(self.replication, statistics, grants, alarms)
        puller = Puller(
            self.replication, self._peers, settings.catch_up_transfers, settings.catch_up_bytes_per_s, tasks
        )
        self.replication.bind(self._links, receiver, puller, self.manager)
        describer = Describer(self.replication, statistics, grants, self.scrubber)
        loader = Loader(self.replication, self._peers, lambda: self.manager.archive_url, statistics)
        preparer = Preparer(self.replication, self._peers, self.manager, statistics, settings.prepare_timeout_s, loader)
        self._local = SidecarService(
            settings, self.replication, self.manager, preparer, describer, statistics, self._greeter
        )
        self._listener = PushListener(receiver, settings.listen_host, settings.push_port, encryption, transport)
        brancher = Brancher(self.replication, self.manager)
        uploader = Uploader(self.replication, self._peers.turns, settings.archive_bytes_per_s)
        driller = Driller(self.replication, uploader.pace)
        answers = Answers(describer, self.scrubber, brancher, uploader, driller)
        callers = Callers(self.replication, directory, self.manager.may_use)
        peer = PeerService(
            self.replication, directory, callers, self._listener, answers, statistics, settings.chunk_bytes
        )
        self._peer_server.add(peer_pb2_grpc.add_PeerServicer_to_server, peer, "rhino.v1.Peer")
        witness = WitnessService(store, forget_journal=settings.forget_journal)
        self._peer_server.add(witness_pb2_grpc.add_WitnessServicer_to_server, witness, "rhino.v1.Witness")
        self._local_server.add(sidecar_pb2_grpc.add_SidecarServicer_to_server, self._local, "rhino.v1.Sidecar")

    def _bind(self, store: Store) -> Worker:
        """Binds the ports first: the address is part of the worker's description."""
        settings = self._settings
        port = self._peer_server.bind(settings.listen)
        # The greeter first: who finds the sidecar's socket finds the greeter's, too.
        self._greeter_socket.bind(self._greeter.bind)
        self._socket.bind(self._local_server.bind)
        address = settings.peer_address(port)
        return Worker(
            settings.worker_id, store.incarnation, settings.host, address, zone=settings.zone, rack=settings.rack
        )

    async def serve(self) -> None:
        """Starts everything. The health checks do not report ready yet."""
        await self._peer_server.start()
        await self._greeter.start()
        await self._local_server.start()
        for place in (self._greeter_socket, self._socket):
            place.open_to_group(self._settings.socket_group)
        self._health.begin(self._checks.alive, self._checks.ready)
        background = {
            "collector": self._collector.run,
            "copies in excess": self._excess.run,
            "credit": self._receiver.run,
            "flusher": self._flusher.run,
            "links": self._tidy,
            "progress": self._links.watch,
            "health": self._report,
            "socket": self._socket.watch,
            "greeter's socket": self._greeter_socket.watch,
        }
        if self._settings.spark_local_dir:
            background["local folders"] = LocalFolders(Path(self._settings.spark_local_dir)).run
        kept = (run_until_cancelled(what, work) for what, work in background.items())
        for work in (self.replication.run(), self.manager.run(), self._listener.run(), *kept):
            self._running.append(self._tasks.create_task(work))

    async def _report(self) -> None:
        servers = (self._peer_server, self._local_server)
        await report(self._health, servers, lambda: self._registered, self._notifier)

    @property
    def waiting_commits(self) -> int:
        return self._local.waiting_commits

    async def _tidy(self) -> None:
        """Ends connections to former workers: clusters grow and shrink for months."""
        while True:
            await asyncio.sleep(TIDY_S)
            self._links.tidy()
            await self._peers.tidy()

    async def ready(self) -> None:
        """Call this once the groups are known: the scrub needs to know the files missing here."""
        self._running.append(self._tasks.create_task(run_until_cancelled("scrub", self.scrubber.run)))
        self._registered = True
        for server in (self._peer_server, self._local_server):
            await server.report(alive=self._health.alive().good, ready=self._health.ready().good)

    async def stop(self) -> None:
        """Drain, send the farewell, close. The owner of the task group cancels the rest."""
        await self._local.drain(DRAIN_S)
        await self.manager.leave()
        for place in (self._socket, self._greeter_socket):
            place.remove()
        self._greeter.close()
        await self._local_server.stop(GRACE_S)
        await self._peer_server.stop(GRACE_S)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._flusher.close()
        await self._peers.close()
        await self.manager.close()


def _greeter(settings: SidecarSettings, audit: AuditLog) -> Greeter:
    try:
        allowed = allowed_users(settings.allow_uid)
    except ValueError as error:
        raise InvalidSettingError(
            f"setting allow_uid = {settings.allow_uid!r}: {error}; must be names or numbers of Unix users, with commas"
        ) from None
    return Greeter(allowed, audit, time.monotonic)
