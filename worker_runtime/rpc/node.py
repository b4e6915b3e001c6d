"""One sidecar's parts and their connections."""

from __future__ import annotations

import asyncio
import os

from rhino.ids import Worker
from rhino.rpc.server import Server
from rhino.settings import SidecarSettings
from rhino_pb import peer_pb2_grpc, sidecar_pb2_grpc
from worker_runtime.collector import Collector
from worker_runtime.core.credit import GrantPool
from worker_runtime.figures import Figures
from worker_runtime.replication import Replication
from worker_runtime.rpc.catch_up import Puller
from worker_runtime.rpc.describe import Describer
from worker_runtime.rpc.door import Door
from worker_runtime.rpc.excess import ExcessCollector
from worker_runtime.rpc.local import SidecarService
from worker_runtime.rpc.manager import ManagerClient
from worker_runtime.rpc.peer import PeerService
from worker_runtime.rpc.peers import Peers
from worker_runtime.rpc.prepare import Preparer
from worker_runtime.rpc.pusher import Links
from worker_runtime.rpc.receiver import Receiver
from worker_runtime.scrubber import Scrubber
from worker_runtime.storage.store import Store

DRAIN_S = 5.0  # commits under way when the sidecar is told to stop
GRACE_S = 1.0  # calls that are still open after that
SOCKET_MODE = 0o660


class Node:
    """Everything that runs in a sidecar process; background work lives in `tasks`."""

    def __init__(self, settings: SidecarSettings, store: Store, tasks: asyncio.TaskGroup) -> None:
        self._settings = settings
        self._tasks = tasks
        self._running: list[asyncio.Task[None]] = []
        self._peer_server, self._local_server = Server(reflect=settings.reflection), Server(reflect=settings.reflection)
        self.me = self._bind(store)
        self.replication = Replication(self.me, store)
        figures, grants = Figures(), GrantPool(settings.memory_limit_bytes, settings.window_bytes)
        self.figures = figures
        self.scrubber = Scrubber(self.replication, settings.scrub_period_s, settings.scrub_bytes_per_s)
        self.manager = ManagerClient(self.replication, figures, self.scrubber, settings.manager, tasks)
        self._peers = Peers(self.replication, figures, self.manager.current)
        self._links = Links(self.replication, figures, self.manager.current, settings.chunk_bytes, tasks)
        self._collector = Collector(self.replication)
        self._excess = ExcessCollector(self.replication, self._peers, settings.excess_grace_s, tasks)
        self.replication.observe = self._excess.saw
        receiver = Receiver(self.replication, figures, grants)
        puller = Puller(
            self.replication, self._peers, settings.catch_up_transfers, settings.catch_up_bytes_per_s, tasks
        )
        self.replication.bind(self._links, receiver, puller, self.manager)
        self.manager.on_floors = self._collector.floors
        self.manager.on_workers = self._links.readdress
        describer = Describer(self.replication, figures, grants, self.scrubber)
        preparer = Preparer(self.replication, self._peers, self.manager, figures, settings.prepare_timeout_s)
        self._local = SidecarService(settings, self.replication, self.manager, preparer, describer, figures)
        self._door = Door(receiver, settings.listen.rpartition(":")[0], settings.push_port)
        peer = PeerService(self.replication, self._door, describer, self.scrubber, figures, settings.chunk_bytes)
        self._peer_server.add(peer_pb2_grpc.add_PeerServicer_to_server, peer, "rhino.v1.Peer")
        self._local_server.add(sidecar_pb2_grpc.add_SidecarServicer_to_server, self._local, "rhino.v1.Sidecar")

    def _bind(self, store: Store) -> Worker:
        """Ports first: the address is part of who this worker is."""
        settings = self._settings
        host = settings.listen.rpartition(":")[0]
        port = self._peer_server.bind(settings.listen)
        reachable = settings.host if host in ("0.0.0.0", "[::]") else host
        settings.socket.parent.mkdir(parents=True, exist_ok=True)
        self._local_server.bind(f"unix://{settings.socket.absolute()}")
        return Worker(settings.worker_id, store.incarnation, settings.host, f"{reachable}:{port}")

    async def serve(self) -> None:
        """Starts everything; not yet ready in the sense of health."""
        await self._peer_server.start()
        await self._local_server.start()
        os.chmod(self._settings.socket, SOCKET_MODE)
        background = (self.manager.run(), self._collector.run(), self._excess.run(), self._door.run())
        for work in (self.replication.run(), *background):
            self._running.append(self._tasks.create_task(work))

    async def ready(self) -> None:
        """Once the groups are known: the scrub wants to know what is missed here."""
        self._running.append(self._tasks.create_task(self.scrubber.run()))
        await self._peer_server.ready()
        await self._local_server.ready()

    async def stop(self) -> None:
        """Drains, says farewell, closes; the task group's owner cancels what is left."""
        await self._local.drain(DRAIN_S)
        await self.manager.leave()
        await self._local_server.stop(GRACE_S)
        await self._peer_server.stop(GRACE_S)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._peers.close()
        await self.manager.close()
