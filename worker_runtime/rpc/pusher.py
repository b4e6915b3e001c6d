"""The sending end of chain replication: one link per neighbour and lane, each on its own connection.

A link sends files from disk within the receiver's credit (Rhino 4.2.2, phase 2): small files from the event loop, data
files from a thread. Several groups take turns part by part, so that a large file of one never holds up the others.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from rhino.errors import RemoteProtocolError, RhinoError
from rhino.ids import Lane, StoreId, Worker
from rhino.rpc.channel import aio_channel, call
from rhino.rpc.convert import worker_of, worker_to_pb
from rhino_pb import peer_pb2, peer_pb2_grpc
from worker_runtime.core import events as ev
from worker_runtime.core.credit import SendWindow
from worker_runtime.figures import Figures
from worker_runtime.replication import Replication
from worker_runtime.rpc.convert import LANE_TO_PB, ack_of, refusal_of
from worker_runtime.rpc.offers import Key, OfferQueue
from worker_runtime.rpc.outbound import Damaged, Sending, begin_frame, cached_file, send_part
from worker_runtime.rpc.wire import Wire, packed, send_all, tune
from worker_runtime.storage.files import NOT_THE_FILE
from worker_runtime.storage.partials import BYTES_MIN as RESUME_BYTES_MIN
from worker_runtime.storage.threads import SMALL_BYTES, run_in

log = logging.getLogger(__name__)
GROUPS_AT_ONCE = 4  # groups whose files take turns on one link
PART_BYTES = 4 * 1024 * 1024  # of a data file with one trip to the thread, when no commit is under way
CONNECT_TIMEOUT_S = 5.0
BACKOFF_S = (0.05, 1.0)  # first and longest pause between attempts
IDLE_S = 1.0  # after which a link gives its credit back, but for one chunk
BROKEN_MAX = 1000  # cut files of which a link remembers to ask where to go on


class Link:
    """Pushes to one worker on one lane; reconnects until stopped."""

    def __init__(self, replication: Replication, figures: Figures, peer: Worker, lane: Lane, chunk_bytes: int) -> None:
        self.peer = peer
        self._lane = lane
        self._chunk_bytes = chunk_bytes
        self._replication = replication
        self._figures = figures
        self._queue = OfferQueue()
        self._wake = asyncio.Event()
        self._window = SendWindow()
        self._active: deque[Sending] = deque()
        self._broken: set[Key] = set()  # large files that a broken link has cut
        self._transfers = itertools.count(1)
        self._connected = False
        self._wire: Wire | None = None
        self._at_once_bytes = min(chunk_bytes, SMALL_BYTES)
        self._sent_at = 0.0
        self._buffer = memoryview(bytearray(chunk_bytes if lane is Lane.BULK else 0))
        self._retarget = asyncio.Event()

    def offer(self, offer: ev.OfferFile) -> None:
        if not self._connected or self._sent_at_once(offer):
            return  # if it is not connected the machine offers again when the link opens
        self._queue.put(offer)
        self._wake.set()

    def _sent_at_once(self, offer: ev.OfferFile) -> bool:
        """A small file in the page cache, with nothing before it, spares a commit the way over the link's task."""
        entry, wire = offer.entry, self._wire
        if wire is None or self._lane is Lane.BULK or self._active or self._queue:
            return False
        if entry.size_bytes > min(self._at_once_bytes, self._window.available_bytes):
            return False
        try:
            pieces = cached_file(self._replication.store.path(entry), next(self._transfers), offer)
        except (Damaged, OSError):
            return False  # whatever it is, the link's task meets it as well, and tells
        if pieces is None:
            return False
        self._figures.sent_bytes += self._window.take(entry.size_bytes)
        wire.send(*pieces)
        return True

    def withdraw(self, key: Key) -> None:
        self._queue.discard(key)

    def move(self, peer: Worker) -> None:
        """The worker has another address now."""
        self.peer = peer
        self._retarget.set()

    async def run(self) -> None:
        """Keeps the link open until cancelled."""
        pause = BACKOFF_S[0]
        while True:
            self._retarget.clear()
            peer = self.peer
            try:
                await self._session(peer)
            except (RhinoError, OSError) as error:
                self._log_down(peer, error)
            finally:
                was_connected = self._down()
            pause = BACKOFF_S[0] if was_connected else min(pause * 2, BACKOFF_S[1])
            await _wait(self._retarget, pause)

    def _log_down(self, peer: Worker, error: Exception) -> None:
        level = logging.WARNING if self._connected else logging.DEBUG  # every further attempt fails in the same way
        extra = {"peer": peer.worker_id, "lane": self._lane.value, "error": str(error)}
        log.log(level, "push link down", extra=extra)

    def _down(self) -> bool:
        was_connected, self._connected = self._connected, False
        self._wire = None
        self._queue.clear()
        while self._active:
            cut = self._active.pop()
            os.close(cut.fd)
            if cut.offset >= RESUME_BYTES_MIN and len(self._broken) < BROKEN_MAX:
                self._broken.add(cut.key)
        if was_connected:
            self._replication.post(ev.PeerDisconnected(self.peer.worker_id, self._lane))
        return was_connected

    async def _session(self, peer: Worker) -> None:
        wire = self._wire = Wire(await self._connect(peer))
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"to-{peer.worker_id}")
        tasks: set[asyncio.Future[Any]] = {asyncio.create_task(self._retarget.wait()), wire.lost}
        try:
            wire.receive(partial(self._replied, peer))
            tasks.add(asyncio.create_task(self._send_all(wire, pool)))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            wire.shut()  # the thread comes back
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            pool.shutdown()
            wire.close()

    async def _connect(self, peer: Worker) -> socket.socket:
        """A connection that has shown its token. Raises RhinoError, OSError."""
        hello = peer_pb2.PushHello(sender=worker_to_pb(self._replication.me), lane=LANE_TO_PB[self._lane])
        doing = f"push to {peer.worker_id} at {peer.peer_address}"
        async with aio_channel(peer.peer_address) as channel:
            stub = peer_pb2_grpc.PeerStub(channel)
            ticket = await call(doing, lambda: stub.OpenPush(hello, timeout=CONNECT_TIMEOUT_S))
        if (receiver := worker_of(ticket.receiver)).worker_id != peer.worker_id:
            raise RemoteProtocolError(f"{peer.peer_address} is {receiver.worker_id}, not {peer.worker_id}")
        host = peer.peer_address.rpartition(":")[0].strip("[]")
        return await connect(host, ticket.port, ticket.token)

    def _replied(self, peer: Worker, reply: peer_pb2.PushReply) -> None:
        match reply.WhichOneof("reply"):
            case "welcome":
                self._window = SendWindow(reply.welcome.credit_bytes)
                self._connected = True
                log.info("push link up", extra={"peer": peer.worker_id, "lane": self._lane.value})
                self._replication.post(ev.PeerConnected(peer.worker_id, self._lane))
            case "credit":
                self._window.give(reply.credit.bytes)
                self._wake.set()
            case "ack":
                ack = ack_of(peer.worker_id, reply.ack)
                if ack.member.worker_id == peer.worker_id:
                    self._settled((ack.store, ack.name))
                self._replication.post(ack)
            case "refusal":
                refusal = refusal_of(peer.worker_id, reply.refusal)
                self._settled((refusal.store, refusal.name))
                self._replication.post(refusal)
            case "resume":
                for sending in self._active:
                    if sending.transfer == reply.resume.transfer:
                        sending.resumed(reply.resume.offset)
                self._wake.set()
            case "broken":
                raise RemoteProtocolError(f"{peer.worker_id}: {reply.broken.message}")
            case other:
                raise RemoteProtocolError(f"unexpected reply {other}")

    def _settled(self, key: Key) -> None:
        """The receiver has it, or does not want it: the rest need not be sent."""
        for sending in self._active:
            if sending.key == key:
                sending.unwanted = True
                self._wake.set()

    async def _send_all(self, wire: Wire, pool: ThreadPoolExecutor) -> None:
        while True:
            self._wake.clear()
            while len(self._active) < GROUPS_AT_ONCE:
                offer = self._queue.pop({sending.entry.store.group for sending in self._active})
                if offer is None:
                    break
                await self._begin(offer)
            if not self._active:
                await self._rest(wire, pool)
                continue
            sending = next((one for one in self._active if one.unwanted or one.begin or not one.asked), None)
            if sending is None or (self._window.available_bytes == 0 and not sending.done and not sending.asked):
                await self._wake.wait()
                continue
            if self._lane is Lane.BULK:
                self._sent_at = await self._replication.precedence.give_way(self._sent_at)
            await self._send(wire, pool, sending)

    async def _rest(self, wire: Wire, pool: ThreadPoolExecutor) -> None:
        """There is nothing to send: after a while the credit is of more use to others."""
        if await _wait(self._wake, IDLE_S):
            return
        if back := self._window.give_back(self._chunk_bytes):
            frame = packed(peer_pb2.PushFrame(returned=peer_pb2.PushReturn(bytes=back)))
            if self._lane is Lane.COMMIT:
                wire.post(frame)
            else:  # as all that this lane sends: one thread, so that nothing gets between
                await run_in(pool, partial(send_all, wire.sock, frame, memoryview(b"")))
        await self._wake.wait()

    async def _begin(self, offer: ev.OfferFile) -> None:
        store, entry = self._replication.store, offer.entry
        path = store.path(entry)
        open_file = partial(os.open, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # What a commit waits for has just been written: the kernel need not ask the disk.
            fd = open_file() if self._lane is Lane.COMMIT else await store.threads.run(self._lane, open_file)
        except OSError as error:
            if error.errno in NOT_THE_FILE:
                raise  # the link reconnects, and is offered it again
            log.warning("offered file is not readable", extra={"file": str(path), "error": str(error)})
            await self._replication.drop_damaged(entry.store, [entry.name])  # nothing happens if it was collected
            return
        number, key = next(self._transfers), (entry.store, entry.name)
        # The receiver may have it all under another name, or a part from a link that broke.
        ask_offset = bool(entry.same_as) or key in self._broken
        begin = begin_frame(number, offer, ask_offset=ask_offset)
        self._active.append(Sending(number, entry, fd, begin, asked=ask_offset))
        self._broken.discard(key)

    async def _send(self, wire: Wire, pool: ThreadPoolExecutor, sending: Sending) -> None:
        """The next part of the file whose turn it is; then it is another one's turn."""
        self._active.remove(sending)
        self._active.append(sending)
        if sending.unwanted:
            self._end(sending)
            return
        sending.go_on()
        try:
            if sending.behind:
                await run_in(pool, partial(sending.catch_up, PART_BYTES))
            else:
                self._figures.sent_bytes += await self._send_part(wire, pool, sending)
        except Damaged as error:
            await self._replication.drop_damaged(sending.entry.store, [sending.entry.name])
            raise RemoteProtocolError(f"{sending.entry.name}: damaged on this side while being sent") from error
        if sending.done:
            self._end(sending)

    async def _send_part(self, wire: Wire, pool: ThreadPoolExecutor, sending: Sending) -> int:
        """As many bytes of the file as go at once; none while the receiver has not said where to go on."""
        left = 0 if sending.asked else sending.entry.size_bytes - sending.offset
        if self._lane is Lane.COMMIT:
            size = self._window.take(min(self._chunk_bytes, left))
            pieces = sending.cached_part(size)
            wire.post(*(await run_in(pool, partial(sending.part, size)) if pieces is None else pieces))
        else:
            part = self._chunk_bytes if self._replication.precedence.under_way else PART_BYTES
            size = self._window.take(min(max(part, self._chunk_bytes), left))
            await run_in(pool, partial(send_part, wire.sock, sending, size, self._buffer))
        return size

    def _end(self, sending: Sending) -> None:
        self._active.remove(sending)
        os.close(sending.fd)


class Links:
    """All links of a sidecar; `Links` of `Replication`. Lives in the sidecar's task group.

    `current` gives a worker as it lives now.
    """

    def __init__(
        self,
        replication: Replication,
        figures: Figures,
        current: Callable[[Worker], Worker],
        chunk_bytes: int,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._current = current
        self._replication = replication
        self._figures = figures
        self._chunk_bytes = chunk_bytes
        self._tasks = tasks
        self._links: dict[tuple[str, Lane], Link] = {}

    def connect(self, to: Worker, lane: Lane) -> None:
        to = self._current(to)
        link = self._links.get((to.worker_id, lane))
        if link is None:
            link = self._links[to.worker_id, lane] = Link(self._replication, self._figures, to, lane, self._chunk_bytes)
            self._tasks.create_task(link.run(), name=f"link to {to.worker_id} {lane.value}")
        elif link.peer.peer_address != to.peer_address:
            link.move(to)

    def readdress(self, workers: list[Worker]) -> None:
        """The manager's word on who lives where."""
        for worker in workers:
            for lane in Lane:
                if (worker.worker_id, lane) in self._links:
                    self.connect(worker, lane)

    def offer(self, offer: ev.OfferFile) -> None:
        self._links[offer.to.worker_id, offer.lane].offer(offer)

    def withdraw(self, to: str, store: StoreId, name: str, lane: Lane) -> None:
        if link := self._links.get((to, lane)):
            link.withdraw((store, name))


async def connect(host: str, port: int, token: bytes) -> socket.socket:
    """A connection to a worker's door that has shown the token. Raises OSError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = addresses[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        tune(sock)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await loop.sock_connect(sock, address)
            await loop.sock_sendall(sock, token)
    except BaseException:
        sock.close()
        raise
    return sock


async def _wait(event: asyncio.Event, timeout_s: float) -> bool:
    """Until the event, at most `timeout_s`; whether it came."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False
