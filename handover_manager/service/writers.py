"""Asks sidecars for the versions of a logged batch written by their own executors (Rhino 4.1, step 4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import grpc.aio

from rhino_core.errors import RhinoError
from rhino_core.ids import StoreVersion, Worker
from rhino_core.rpc import convert
from rhino_core.rpc.channel import call, worker_channel
from rhino_core.security.transport import Transport
from rhino_core.turns import Turns
from rhino_pb import common_pb2, peer_pb2, peer_pb2_grpc

log = logging.getLogger(__name__)
CHECK_TIMEOUT_S = 2.0


@dataclass(slots=True)
class _Asking:
    """The writers of one batch. `hints`: whom to ask first about each version. `silent`: somebody did not answer."""

    hints: Mapping[StoreVersion, str]
    first: dict[str, list[StoreVersion]] = field(default_factory=dict)
    found: dict[StoreVersion, str] = field(default_factory=dict)
    silent: bool = False
    _messages: dict[StoreVersion, common_pb2.StoreVersion] = field(default_factory=dict)

    def others(self, workers: Iterable[Worker]) -> list[tuple[Worker, list[StoreVersion]]]:
        """Returns the versions to look up at each worker: writer still unknown, worker not asked yet."""
        missing = [version for version in self.hints if version not in self.found]
        asked = ((w, [v for v in missing if self.hints[v] != w.worker_id]) for w in workers if missing)
        return [(worker, versions) for worker, versions in asked if versions]

    def message_of(self, version: StoreVersion) -> common_pb2.StoreVersion:
        """The version as a message, made once for all workers."""
        known = self._messages.get(version)
        if known is None:
            known = self._messages[version] = convert.store_version_to_pb(version)
        return known


class WriterFinder:
    """Finds the writers of versions. Keeps one connection per worker while the worker is in use."""

    def __init__(self, transport: Transport, turns: Turns | None = None) -> None:
        """`turns`: for questions about many versions."""
        self._transport = transport
        self._turns = turns or Turns()
        self._channels: dict[tuple[str, int], grpc.aio.Channel] = {}  # by address, and edition of our certificate
        self._running = 0

    async def close(self) -> None:
        await asyncio.gather(*[channel.close(None) for channel in self._channels.values()])
        self._channels.clear()

    async def find(
        self, versions: Sequence[tuple[StoreVersion, str]], workers: Sequence[Worker], near: Collection[str] = ()
    ) -> dict[StoreVersion, str]:
        """Worker ids of the writers, as far as a worker claims a version.

        Each version comes with the worker to ask first. The workers in `near` are asked next for missing ones, and all
        others last: three rounds at most. A worker without an answer within CHECK_TIMEOUT_S counts as silent.
        """
        if not self._running:
            await self._forget(workers)
        self._running += 1
        try:
            return await self._find(versions, workers, near)
        finally:
            self._running -= 1

    async def _find(
        self, versions: Sequence[tuple[StoreVersion, str]], workers: Sequence[Worker], near: Collection[str]
    ) -> dict[StoreVersion, str]:
        by_id = {worker.worker_id: worker for worker in workers}
        asking = _Asking(dict(versions))
        for version, hint in versions:
            if hint in by_id:
                asking.first.setdefault(hint, []).append(version)
        await self._ask_all([(by_id[w], asked) for w, asked in asking.first.items()], asking)
        await self._ask_all(asking.others(worker for worker in workers if worker.worker_id in near), asking)
        # With 1000 workers, a few that are busy would otherwise make work for all of them, and for the manager.
        if not (near and asking.silent):
            await self._ask_all(asking.others(worker for worker in workers if worker.worker_id not in near), asking)
        return asking.found

    async def _ask_all(self, questions: Sequence[tuple[Worker, list[StoreVersion]]], asking: _Asking) -> None:
        answers = await asyncio.gather(*[self._ask(worker, asked, asking) for worker, asked in questions])
        for (worker, _), written in zip(questions, answers, strict=True):
            asking.silent = asking.silent or written is None
            asking.found |= dict.fromkeys(written or (), worker.worker_id)

    async def _ask(self, worker: Worker, versions: list[StoreVersion], asking: _Asking) -> list[StoreVersion] | None:
        """The versions claimed by the worker. None if it does not answer."""
        await self._turns.take()
        key = worker.peer_address, self._transport.edition
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = worker_channel(worker, self._transport)
        stub = peer_pb2_grpc.PeerStub(channel)
        request = peer_pb2.CheckVersionsRequest(versions=map(asking.message_of, versions))
        doing = f"ask worker {worker.worker_id} at {worker.peer_address} what it wrote"
        try:
            reply = await call(doing, lambda: stub.CheckVersions(request, timeout=CHECK_TIMEOUT_S))
        except RhinoError as error:
            log.info("no answer about written versions", extra={"worker": worker.worker_id, "error": str(error)})
            return None
        await self._turns.take()
        return [convert.store_version_of(check.version) for check in reply.checks if check.written_here]

    async def _forget(self, workers: Iterable[Worker]) -> None:
        """Closes connections to unused addresses, and those with a former certificate."""
        used = {(worker.peer_address, self._transport.edition) for worker in workers}
        for key in [key for key in self._channels if key not in used]:
            await self._channels.pop(key).close(None)
