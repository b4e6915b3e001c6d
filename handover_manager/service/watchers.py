"""The streams of WatchHandover."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

from handover_manager.drive.handover import DrivenHandover
from handover_manager.service.messages import handover_to_pb
from rhino_pb import handover_pb2 as pb


class Watchers:
    """The watchers of each handover, and their unread updates."""

    def __init__(self) -> None:
        self._queues: dict[str, list[asyncio.Queue[pb.HandoverStatus]]] = defaultdict(list)

    def watched(self, handover_id: str) -> bool:
        return handover_id in self._queues

    def announce(self, handover: DrivenHandover) -> None:
        """The handover has changed."""
        if self.watched(handover.handover_id):
            status = handover_to_pb(handover)
            for queue in self._queues[handover.handover_id]:
                queue.put_nowait(status)

    async def watch(self, handover: DrivenHandover) -> AsyncIterator[pb.HandoverStatus]:
        """Yields the present status, then each change until the handover has ended."""
        queue: asyncio.Queue[pb.HandoverStatus] = asyncio.Queue()
        self._queues[handover.handover_id].append(queue)
        try:
            ended, last = handover.ended, handover_to_pb(handover)
            yield last
            while not ended:
                status = await queue.get()
                ended = bool(status.finished_ms)
                if status != last:
                    yield status
                last = status
        finally:
            self._queues[handover.handover_id].remove(queue)
            if not self._queues[handover.handover_id]:
                del self._queues[handover.handover_id]
