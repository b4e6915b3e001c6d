"""The streams of WatchLoad: the load of each logged batch, for controllers from outside."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from handover_manager.events import BatchLogged
from handover_manager.queries.job import Job
from handover_manager.view import ClusterView
from rhino_model.codec import encode
from rhino_pb import handover_pb2 as pb

UNREAD_MAX = 256  # batches that a slow caller has not read


@dataclass(eq=False, slots=True)
class _Caller:
    """One stream. `job` is an id; empty: all jobs."""

    job: str
    unread: deque[pb.BatchLoad] = field(default_factory=deque)
    skipped: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, load: pb.BatchLoad) -> None:
        """A slow reader misses the oldest batches."""
        if len(self.unread) == UNREAD_MAX:
            self.skipped += 1 + self.unread.popleft().skipped
        self.unread.append(load)
        self.arrived.set()

    async def next(self) -> pb.BatchLoad:
        while not self.unread:
            self.arrived.clear()
            await self.arrived.wait()
        load = pb.BatchLoad()
        load.CopyFrom(self.unread.popleft())  # other callers have the same message
        load.skipped, self.skipped = self.skipped, 0
        return load


class Loads:
    """The callers of WatchLoad."""

    def __init__(self) -> None:
        self._callers: set[_Caller] = set()

    def announce(self, event: BatchLogged, job: Job, view: ClusterView) -> None:
        """A batch of the job was accepted."""
        callers = [caller for caller in self._callers if caller.job in ("", job.job)]
        if callers:
            load = _load_of(event, job, view)
            for caller in callers:
                caller.add(load)

    async def watch(self, job: str) -> AsyncGenerator[pb.BatchLoad, None]:
        """Yields the load of each batch from now on. `job` is an id; empty: all jobs."""
        caller = _Caller(job)
        self._callers.add(caller)
        try:
            while True:
                yield await caller.next()
        finally:
            self._callers.remove(caller)


def _load_of(event: BatchLogged, job: Job, view: ClusterView) -> pb.BatchLoad:
    desired = job.map.desired
    return pb.BatchLoad(
        job=job.job,
        name=job.run.name,
        run_id=event.run_id,
        batch_id=event.batch_id,
        configuration_epoch=job.map.configuration_epoch,
        input_rows=event.rows,
        batch_s=event.batch_s,
        trigger_s=event.trigger_s,
        virtual_nodes=[
            pb.VirtualNodeLoad(
                virtual_node=node.name, desired_worker=desired.get(node, ""), task_s=work.task_s, rows=work.rows
            )
            for node, work in sorted(event.work.items())
        ],
        workers=sum(seen.eligible for seen in view.workers.values()),
        lags=[encode(pb.SourceLag, one) for one in event.lags],
    )
