"""Asks sidecars which versions of a logged batch their own executors wrote (Rhino 4.1, step 4)."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

import grpc.aio

from rhino_core.errors import RhinoError
from rhino_core.ids import StoreVersion, Worker
from rhino_core.rpc import convert
from rhino_core.rpc.channel import call, worker_channel
from rhino_core.security.transport import Transport
from rhino_pb import peer_pb2, peer_pb2_grpc

log = logging.getLogger(__name__)
CHECK_TIMEOUT_S = 2.0


class WriterFinder:
    """Finds the writers of versions. Keeps one connection per worker while the worker is in use."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._channels: dict[tuple[str, int], grpc.aio.Channel] = {}  # by address, and edition of our certificate
        self._running = 0

    async def close(self) -> None:
        await asyncio.gather(*[channel.close(None) for channel in self._channels.values()])
        self._channels.clear()

    async def find(
        self, versions: Sequence[tuple[StoreVersion, str]], workers: Sequence[Worker]
    ) -> dict[StoreVersion, str]:
        """Worker ids of the writers, as far as a worker claims a version.

        Each version comes with the worker to ask first. A worker that does not answer within CHECK_TIMEOUT_S counts as
        silent. There are at most two rounds.
        """
        if not self._running:
            await self._forget(workers)
        self._running += 1
        try:
            return await self._find(versions, workers)
        finally:
            self._running -= 1

    async def _find(
        self, versions: Sequence[tuple[StoreVersion, str]], workers: Sequence[Worker]
    ) -> dict[StoreVersion, str]:
        by_id = {worker.worker_id: worker for worker in workers}
        first: dict[str, list[StoreVersion]] = defaultdict(list)
        for version, hint in versions:
            if hint in by_id:
                first[hint].append(version)
        found = await self._ask_all([(by_id[w], asked) for w, asked in first.items()])
        missing = [(version, hint) for version, hint in versions if version not in found]
        if missing:
            others = [(w, [v for v, hint in missing if hint != w.worker_id]) for w in workers]
            found |= await self._ask_all([(w, asked) for w, asked in others if asked])
        return found

    async def _ask_all(self, questions: Sequence[tuple[Worker, list[StoreVersion]]]) -> dict[StoreVersion, str]:
        answers = await asyncio.gather(*[self._ask(worker, asked) for worker, asked in questions])
        return {
            version: worker.worker_id
            for (worker, _), written in zip(questions, answers, strict=True)
            for version in written
        }

    async def _ask(self, worker: Worker, versions: list[StoreVersion]) -> list[StoreVersion]:
        key = worker.peer_address, self._transport.edition
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = worker_channel(worker, self._transport)
        stub = peer_pb2_grpc.PeerStub(channel)
        request = peer_pb2.CheckVersionsRequest(versions=[convert.store_version_to_pb(v) for v in versions])
        doing = f"ask worker {worker.worker_id} at {worker.peer_address} what it wrote"
        try:
            reply = await call(doing, lambda: stub.CheckVersions(request, timeout=CHECK_TIMEOUT_S))
        except RhinoError as error:
            log.info("no answer about written versions", extra={"worker": worker.worker_id, "error": str(error)})
            return []
        return [convert.store_version_of(check.version) for check in reply.checks if check.written_here]

    async def _forget(self, workers: Iterable[Worker]) -> None:
        """Closes connections to addresses that no worker uses any more, and those with a former certificate."""
        used = {(worker.peer_address, self._transport.edition) for worker in workers}
        for key in [key for key in self._channels if key not in used]:
            await self._channels.pop(key).close(None)
