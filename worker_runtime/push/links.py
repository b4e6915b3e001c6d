"""All push links of a sidecar: their workers, and their lifetimes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from rhino_core.descriptors import LogLimit
from rhino_core.ids import Lane, Worker
from worker_runtime.manager_link.directory import Directory
from worker_runtime.protocol import events as ev
from worker_runtime.push.alarms import Alarms
from worker_runtime.push.opening import Opening
from worker_runtime.push.sender import Link
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics

log = logging.getLogger(__name__)
PROGRESS_S = 1.0
STRANGERS_MAX = 1000  # workers that only peers have named, not the manager


class Links:
    """`Links` of `Replication`. Its tasks run in the sidecar's task group.

    Only the manager decides where other workers are and whether they belong to the cluster: a message could name
    anybody.
    """

    def __init__(
        self,
        replication: Replication,
        statistics: Statistics,
        directory: Directory,
        opening: Opening,
        chunk_bytes: int,
        tasks: asyncio.TaskGroup,
        alarms: Alarms | None = None,
    ) -> None:
        self._directory = directory
        self._replication = replication
        self._statistics = statistics
        self._alarms = alarms
        self._opening = opening
        self._chunk_bytes = chunk_bytes
        self._tasks = tasks
        self._links: dict[tuple[str, Lane], Link] = {}
        self._running: dict[tuple[str, Lane], asyncio.Task[None]] = {}
        self._ending: set[tuple[str, Lane]] = set()
        self._asked_for: dict[tuple[str, Lane], None] = {}  # to be linked once the manager names them; oldest first
        self._unneeded: set[str] = set()  # workers that `tidy` found unneeded the last time
        self._warnings = LogLimit(asyncio.get_running_loop().time)
        directory.subscribe(self._named)

    def connect(self, to: Worker, lane: Lane) -> None:
        named = self._directory.find(to.worker_id)
        if named is None:
            self._put_off(to, lane)
            return
        if (to.worker_id, lane) in self._ending:
            self._remember((to.worker_id, lane))
            return
        link = self._links.get((to.worker_id, lane))
        if link is None:
            self._open(named, lane)
        elif link.peer.peer_address != named.peer_address:
            link.move(named)

    def _open(self, to: Worker, lane: Lane) -> None:
        key = to.worker_id, lane
        self._asked_for.pop(key, None)
        link = self._links[key] = Link(
            self._replication, self._statistics, self._opening, to, lane, self._chunk_bytes, self._alarms
        )
        work = link.run(self._directory.is_live)
        self._running[key] = self._tasks.create_task(work, name=f"link to {to.worker_id} {lane.value}")

    def _put_off(self, to: Worker, lane: Lane) -> None:
        """Remember the request: the manager's update on a new worker may still be on its way."""
        if (to.worker_id, lane) not in self._asked_for and (left_out := self._warnings.due()) is not None:
            extra = {"peer": to.worker_id, "address": to.peer_address, "times_before": left_out}
            log.warning("no link to a worker that the manager has not named", extra=extra)
        self._remember((to.worker_id, lane))

    def _remember(self, key: tuple[str, Lane]) -> None:
        self._asked_for[key] = None
        while len(self._asked_for) > STRANGERS_MAX:
            del self._asked_for[next(iter(self._asked_for))]

    def _named(self, returned: Collection[str]) -> None:
        """The manager has sent new addresses. `returned`: newly live workers."""
        for worker in self._directory.live:
            for lane in Lane:
                key = worker.worker_id, lane
                if key in self._links or key in self._asked_for:
                    self.connect(worker, lane)
                if worker.worker_id in returned and key in self._links:
                    self._links[key].retry()

    def tidy(self) -> None:
        """Renews due links, and ends links to workers not needed now nor the last time.

        Call this periodically.

        An unneeded worker is not live and in no group known here. If it comes back, its missing files are offered
        again.
        """
        for link in self._links.values():
            link.renew()
        unneeded = {worker_id for worker_id, _ in self._links} - self._directory.wanted()
        for key in [key for key in self._links if key[0] in unneeded & self._unneeded]:
            del self._links[key]
            task = self._running.pop(key)
            task.cancel()
            self._ending.add(key)
            self._remember(key)
            task.add_done_callback(lambda _, key=key: self._ended(key))  # type: ignore[misc]
            log.info("push link given up: its worker is gone", extra={"peer": key[0], "lane": key[1].value})
        self._unneeded = unneeded

    def _ended(self, key: tuple[str, Lane]) -> None:
        """The link has reported its end. Only now may another one be opened."""
        self._ending.discard(key)
        self._named(())

    def __len__(self) -> int:
        return len(self._links)

    def offer(self, offer: ev.OfferFile) -> None:
        if link := self._links.get((offer.to.worker_id, offer.lane)):
            link.offer(offer)

    def withdraw(self, offer: ev.WithdrawOffer) -> None:
        if link := self._links.get((offer.to, offer.lane)):
            link.withdraw((offer.store, offer.name), stop=offer.stop)

    async def watch(self) -> None:
        """Tells waiting commits each second which links move."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            moved = [event for link in self._links.values() if (event := link.progress()) is not None]
            if self._replication.waiting_commits:
                for event in moved:
                    self._replication.post(event)
