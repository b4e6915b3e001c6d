"""The sending end of chain replication: one link per neighbour and lane, each on its own connection.

A link carries out the decisions of its core (core/sender.py): it sends small files from the event loop, and data files
from a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from rhino_core import retry
from rhino_core.errors import PreconditionError, RemoteProtocolError, RhinoError, UnavailableError
from rhino_core.ids import Lane, Worker
from worker_runtime.protocol import events as ev
from worker_runtime.push.alarms import Alarms
from worker_runtime.push.connection import Connection, ThreadSender
from worker_runtime.push.core.offers import Key
from worker_runtime.push.core.records import TamperedError
from worker_runtime.push.core.sender import FileState, OutgoingFile, PushSender, Unblocked, Welcomed
from worker_runtime.push.opening import Opening
from worker_runtime.push.outbound import CheckedFile, Damaged, cached_bytes, send_part
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics
from worker_runtime.storage.disk.files import NOT_THE_FILE
from worker_runtime.storage.disk.partials import BYTES_MIN as RESUME_BYTES_MIN
from worker_runtime.storage.disk.threads import SMALL_BYTES, open_stored, run_in

log = logging.getLogger(__name__)
PART_BYTES = 4 * 1024 * 1024  # bytes of a data file per call of the thread, while no commit is under way
IDLE_S = 1.0  # idle time after which a link returns all credit but one chunk
BROKEN_MAX = 1000  # number of interrupted files for which a link remembers to ask for the offset


class GivenUp(UnavailableError):
    """This worker has ended the connection, because nobody waits any more for a file under way."""


class Link:
    """Pushes to one worker on one lane. Reconnects until stopped."""

    def __init__(
        self,
        replication: Replication,
        statistics: Statistics,
        opening: Opening,
        peer: Worker,
        lane: Lane,
        chunk_bytes: int,
        alarms: Alarms | None = None,
    ) -> None:
        self.peer = peer
        self._opening = opening
        self._lane = lane
        self._chunk_bytes = chunk_bytes
        self._replication = replication
        self._statistics = statistics
        self._alarms = alarms if alarms is not None else Alarms(statistics)
        self._core = PushSender(peer.worker_id)
        self._connection: Connection | None = None
        self._thread_sender: ThreadSender | None = None
        self._connected = False  # from the Welcome to the end of the session
        self._wake = asyncio.Event()
        self._open: dict[OutgoingFile, CheckedFile] = {}
        self._told = ""  # why the last attempt was refused, if people have to do something about it
        self._broken: set[Key] = set()  # large files whose transfer a broken link interrupted
        self._at_once_bytes = min(chunk_bytes, SMALL_BYTES)
        self._sent_at = 0.0
        self._opened = opening.moment
        self._taken_bytes: int | None = None  # of this connection, at the last look
        self._buffer = memoryview(bytearray(chunk_bytes if lane is Lane.BULK else 0))
        self._retarget = asyncio.Event()
        self._again = asyncio.Event()  # skip the pause before the next attempt

    def offer(self, offer: ev.OfferFile) -> None:
        """Sends the file at once or in its turn. When not connected, drops the offer: the machine repeats it when the
        link opens.
        """
        if not self._connected or self._connection is None:
            return
        data = self._to_send_at_once(offer)
        if data is None:
            self._core.offer(offer)
            self._wake.set()
        else:
            self._statistics.sent_bytes += offer.entry.size_bytes
            self._connection.post(self._core.whole(offer), data, at_once=True)

    def _to_send_at_once(self, offer: ev.OfferFile) -> memoryview | None:
        """The bytes of a small file if they are in the page cache and nothing is queued before it, else None.

        This saves a commit the detour through the link's task. The bytes of a branch are probably there already.
        """
        size = offer.entry.size_bytes
        if (
            self._lane is Lane.BULK
            or offer.entry.branch_of
            or size > self._at_once_bytes
            or not self._core.may_send_whole(size)
        ):
            return None
        try:
            return cached_bytes(self._replication.store.files.path(offer.entry), offer.entry)
        except (Damaged, OSError):
            return None  # the link's task will meet the same error and report it

    def withdraw(self, key: Key, *, stop: bool) -> None:
        """Does not begin with the file. `stop`: nor go on with it, at the price of a new connection."""
        under_way = self._core.withdraw(key)
        if stop and under_way and self._connected and self._connection is not None:
            self._connection.discard_unsent()
            self._connection.lose(GivenUp(f"nobody waits for {key[0]}/{key[1]} any more: its transfer ends"))
            self._again.set()

    def progress(self) -> ev.BytesSent | None:
        """Returns the bytes taken by the other machine since the last call. None: nothing."""
        files = self._core.progress()
        if not self._connected or self._connection is None:
            return None
        before, self._taken_bytes = self._taken_bytes, self._connection.taken_bytes()
        moved = before is not None and self._taken_bytes > before
        return ev.BytesSent(self.peer.worker_id, self._lane, files) if moved else None

    def move(self, peer: Worker) -> None:
        """The worker has a new address."""
        self.peer = peer
        self._retarget.set()
        self._again.set()

    def renew(self) -> None:
        """Opens the stream anew if it is due. Call this periodically."""
        if self._connection is not None and self._opening.is_due(self._opened):
            self._retarget.set()
            self._again.set()

    def retry(self) -> None:
        """The worker has come back: try at once."""
        self._again.set()

    async def run(self, is_live: Callable[[str], bool]) -> None:
        """Keeps the link open until cancelled."""
        pauses = retry.LINK.pauses()
        while True:
            self._retarget.clear()
            self._again.clear()
            peer = self.peer
            try:
                await self._session(peer)
            except (RhinoError, OSError) as error:
                self._log_down(peer, error)
            finally:
                was_connected = self._down()
            if was_connected:
                pauses.reset()
            longest_s = retry.LINK.longest_s if is_live(peer.worker_id) else retry.LINK_ABSENT_S_MAX
            await _wait(self._again, pauses.take(longest_s))

    def _log_down(self, peer: Worker, error: Exception) -> None:
        if isinstance(error, TamperedError):
            self._alarms.tampered(peer.worker_id, self._lane, error, peer.peer_address)
        told, self._told = self._told, str(error) if isinstance(error, PreconditionError) else ""
        # Further attempts fail in the same way.
        level = logging.WARNING if self._connected or self._told not in ("", told) else logging.DEBUG
        if isinstance(error, GivenUp):
            level = logging.INFO
        extra = {"peer": peer.worker_id, "lane": self._lane.value, "error": str(error)}
        log.log(level, "push link down", extra=extra)

    def _down(self) -> bool:
        was_connected, self._connected = self._connected, False
        self._connection = None
        for file in self._core.close():
            self._open.pop(file).close()
            if file.offset >= RESUME_BYTES_MIN and len(self._broken) < BROKEN_MAX:
                self._broken.add(file.key)
        if was_connected:
            self._replication.post(ev.PeerDisconnected(self.peer.worker_id, self._lane))
        return was_connected

    async def _session(self, peer: Worker) -> None:
        self._opened = self._opening.moment
        connection = self._connection = await self._connect(peer)
        # Bytes leave from one place, so that nothing interleaves: on the bulk lane from the thread.
        self._thread_sender = connection.thread_sender() if self._lane is Lane.BULK else None
        self._core = PushSender(peer.worker_id)
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"to-{peer.worker_id}")
        tasks: set[asyncio.Future[Any]] = {asyncio.create_task(self._retarget.wait()), connection.lost}
        try:
            connection.watch(partial(self._readable, connection, peer))
            tasks.add(asyncio.create_task(self._send_files(connection, pool)))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            connection.shut()  # lets the thread return
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            pool.shutdown()
            connection.close()

    async def _connect(self, peer: Worker) -> Connection:
        return await self._opening.connect(self._replication.me, peer, self._lane)

    def _readable(self, connection: Connection, peer: Worker) -> None:
        """Carries out the arrived replies."""
        try:
            self._core.receive(connection.read())
            while (event := self._core.next_event()) is not None:
                match event:
                    case Welcomed():
                        self._connected, self._taken_bytes = True, None
                        log.info("push link up", extra={"peer": peer.worker_id, "lane": self._lane.value})
                        self._replication.post(ev.PeerConnected(peer.worker_id, self._lane))
                    case Unblocked():
                        self._wake.set()
                    case ev.AckReceived() | ev.RefusalReceived():
                        if not self._core.idle:  # the rest of a file may be unwanted now
                            self._wake.set()
                        self._replication.post(event)
        except BlockingIOError:
            return
        except Exception as error:
            connection.lose(error)

    async def _send_files(self, connection: Connection, pool: ThreadPoolExecutor) -> None:
        while True:
            self._wake.clear()
            while (offer := self._core.next_offer()) is not None:
                await self._begin(offer)
            if self._core.idle:
                await self._return_credit(connection, pool)
                continue
            file = self._core.next_file()
            if file is None:
                await self._wake.wait()
                continue
            if self._lane is Lane.BULK:
                self._sent_at = await self._replication.precedence.yield_to_commits(self._sent_at)
            await self._send(connection, pool, file)

    async def _return_credit(self, connection: Connection, pool: ThreadPoolExecutor) -> None:
        """There is nothing to send: after IDLE_S returns the credit, so others can use it."""
        if await _wait(self._wake, IDLE_S):
            return
        if frame := self._core.return_credit(self._chunk_bytes):
            if self._thread_sender is None:
                connection.post(frame)
            else:
                await run_in(pool, partial(self._thread_sender.send, frame, memoryview(b"")))
        await self._wake.wait()

    async def _begin(self, offer: ev.OfferFile) -> None:
        store, entry = self._replication.store, offer.entry
        path = store.files.path(entry)
        try:
            # Files of the commit lane have just been written: opening them needs no disk access.
            fd = open_stored(path) if self._lane is Lane.COMMIT else await store.threads.open(self._lane, path)
        except OSError as error:
            if error.errno in NOT_THE_FILE:
                raise  # the link reconnects, and the file is offered again
            log.warning("offered file is not readable", extra={"file": str(path), "error": str(error)})
            await self._replication.drop_damaged(entry.store, [entry.name])  # has no effect if the file was collected
            return
        # The receiver may have the same bytes under another name, or a part of them from a broken link.
        key = entry.store, entry.name
        file = self._core.begin(offer, ask_offset=bool(entry.same_as or entry.branch_of) or key in self._broken)
        self._open[file] = CheckedFile(entry, fd)
        self._broken.discard(key)

    async def _send(self, connection: Connection, pool: ThreadPoolExecutor, file: OutgoingFile) -> None:
        """Sends the next part of this file."""
        if file.state is not FileState.UNWANTED:
            file.skip_known()
            checked = self._open[file]
            try:
                if checked.checked_bytes < file.offset:
                    await run_in(pool, partial(checked.check, PART_BYTES, file.offset))
                else:
                    self._statistics.sent_bytes += await self._send_part(connection, pool, file, checked)
            except Damaged as error:
                await self._replication.drop_damaged(file.entry.store, [file.entry.name])
                raise RemoteProtocolError(f"{file.entry.name}: damaged on this side while being sent") from error
        if file.done:
            self._core.end(file)
            self._open.pop(file).close()

    async def _send_part(
        self, connection: Connection, pool: ThreadPoolExecutor, file: OutgoingFile, checked: CheckedFile
    ) -> int:
        """Sends as many bytes of the file as possible at once. Returns their number."""
        if self._thread_sender is None:
            part = self._core.part(file, self._chunk_bytes)
            data = checked.read_cached(part.size)
            if data is None:
                data = await run_in(pool, partial(checked.read, part.size))
            connection.post(part.head, data)
        else:
            yields = self._replication.precedence.under_way
            part = self._core.part(file, self._chunk_bytes if yields else max(PART_BYTES, self._chunk_bytes))
            await run_in(pool, partial(send_part, self._thread_sender, checked, part, self._buffer))
        return part.size


async def _wait(event: asyncio.Event, timeout_s: float) -> bool:
    """Waits for the event, at most `timeout_s`. Returns whether it occurred."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False
