"""The sending end of chain replication: one link per neighbour and lane, each on its own connection.

A link sends files from disk, a chunk at a time, within the receiver's credit (Rhino 4.2.2, phase 2). Several groups
take turns chunk by chunk, so that a large file of one never holds up the others.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable
from functools import partial

import grpc
import grpc.aio
from crc32c import crc32c

from rhino.errors import RemoteProtocolError, RhinoError, UnavailableError
from rhino.ids import Lane, StoreId, Worker
from rhino.rpc.channel import aio_channel
from rhino.rpc.convert import epoch_to_pb, file_to_pb, worker_to_pb
from rhino.rpc.status import error_of
from rhino_pb import peer_pb2
from worker_runtime.core import events as ev
from worker_runtime.core.credit import SendWindow
from worker_runtime.figures import Figures
from worker_runtime.replication import Replication
from worker_runtime.rpc.convert import LANE_TO_PB, ack_of, refusal_of
from worker_runtime.rpc.frames import data_frame, read_data_frame, replicate
from worker_runtime.rpc.offers import Key, OfferQueue, Sending
from worker_runtime.storage.partials import BYTES_MIN as RESUME_BYTES_MIN

log = logging.getLogger(__name__)
GROUPS_AT_ONCE = 4  # groups whose files take turns on one link
CONNECT_TIMEOUT_S = 5.0
BACKOFF_S = (0.05, 1.0)  # first and longest pause between attempts
BROKEN_MAX = 1000  # cut files of which a link remembers to ask where to go on
Call = grpc.aio.StreamStreamCall[peer_pb2.PushFrame | bytes, peer_pb2.PushReply]


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
        self._sent_at = 0.0
        self._retarget = asyncio.Event()

    def offer(self, offer: ev.OfferFile) -> None:
        if self._connected:  # otherwise the machine offers again when the link opens
            self._queue.put(offer)
            self._wake.set()

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
            channel = aio_channel(peer.peer_address)
            try:
                await self._session(channel, peer)
            except grpc.RpcError as error:
                self._log_down(peer, error_of(error, f"push to {peer.worker_id} at {peer.peer_address}"))
            except (RhinoError, OSError, asyncio.InvalidStateError) as error:
                self._log_down(peer, error)
            finally:
                was_connected = self._down()
                await channel.close(None)
            pause = BACKOFF_S[0] if was_connected else min(pause * 2, BACKOFF_S[1])
            await _wait(self._retarget, pause)

    def _log_down(self, peer: Worker, error: Exception) -> None:
        level = logging.WARNING if self._connected else logging.DEBUG  # every further attempt fails in the same way
        extra = {"peer": peer.worker_id, "lane": self._lane.value, "error": str(error)}
        log.log(level, "push link down", extra=extra)

    def _down(self) -> bool:
        was_connected, self._connected = self._connected, False
        self._queue.clear()
        while self._active:
            cut = self._active.pop()
            os.close(cut.fd)
            if cut.offset >= RESUME_BYTES_MIN and len(self._broken) < BROKEN_MAX:
                self._broken.add(cut.key)
        if was_connected:
            self._replication.post(ev.PeerDisconnected(self.peer.worker_id, self._lane))
        return was_connected

    async def _session(self, channel: grpc.aio.Channel, peer: Worker) -> None:
        call: Call = replicate(channel)()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            hello = peer_pb2.PushHello(sender=worker_to_pb(self._replication.me), lane=LANE_TO_PB[self._lane])
            await call.write(peer_pb2.PushFrame(hello=hello))
            welcome = await _read(call)
        if welcome.WhichOneof("reply") != "welcome" or welcome.welcome.receiver.worker_id != peer.worker_id:
            raise RemoteProtocolError(f"{peer.peer_address} is not {peer.worker_id}: {welcome.WhichOneof('reply')}")
        self._window = SendWindow(welcome.welcome.credit_bytes)
        self._connected = True
        log.info("push link up", extra={"peer": peer.worker_id, "lane": self._lane.value})
        self._replication.post(ev.PeerConnected(peer.worker_id, self._lane))
        tasks = {
            asyncio.create_task(self._send_all(call)),
            asyncio.create_task(self._read_all(call, peer)),
            asyncio.create_task(self._retarget.wait()),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            call.cancel()

    async def _read_all(self, call: Call, peer: Worker) -> None:
        while True:
            reply = await _read(call)
            match reply.WhichOneof("reply"):
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
                            sending.go_on_at(reply.resume.offset)
                    self._wake.set()
                case other:
                    raise RemoteProtocolError(f"unexpected reply {other}")

    def _settled(self, key: Key) -> None:
        """The receiver has it, or does not want it: the rest need not be sent."""
        for sending in self._active:
            if sending.key == key:
                sending.unwanted = True
                self._wake.set()

    async def _send_all(self, call: Call) -> None:
        while True:
            self._wake.clear()
            while len(self._active) < GROUPS_AT_ONCE:
                offer = self._queue.pop({sending.entry.store.group for sending in self._active})
                if offer is None:
                    break
                await self._begin(call, offer)
            sending = next((one for one in self._active if one.unwanted or not one.asked), None)
            if sending is None or (self._window.available_bytes == 0 and not sending.done):
                await self._wake.wait()
                continue
            if self._lane is Lane.BULK:
                self._sent_at = await self._replication.precedence.give_way(self._sent_at)
            await self._send_chunk(call, sending)

    async def _begin(self, call: Call, offer: ev.OfferFile) -> None:
        store, entry = self._replication.store, offer.entry
        path = store.path(entry)
        open_file = partial(os.open, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            # What a commit waits for has just been written: the kernel need not ask the disk.
            fd = open_file() if self._lane is Lane.COMMIT else await store.run(self._lane, open_file)
        except OSError as error:
            log.warning("offered file is not readable", extra={"file": str(path), "error": str(error)})
            await self._replication.drop_damaged(entry.store, [entry.name])  # nothing happens if it was collected
            return
        sending = Sending(next(self._transfers), entry, fd, asked=(entry.store, entry.name) in self._broken)
        self._broken.discard(sending.key)
        self._active.append(sending)
        begin = peer_pb2.PushBegin(
            transfer=sending.transfer,
            file=file_to_pb(entry),
            epoch=epoch_to_pb(offer.epoch),
            chain=[worker_to_pb(worker) for worker in offer.chain],
            ask_offset=sending.asked,
        )
        await call.write(peer_pb2.PushFrame(begin=begin))

    async def _send_chunk(self, call: Call, sending: Sending) -> None:
        """The next piece of the file whose turn it is; then it is another one's turn."""
        self._active.remove(sending)
        self._active.append(sending)
        if sending.unwanted:
            self._end(sending)
            return
        size = self._window.take(min(self._chunk_bytes, sending.entry.size_bytes - sending.offset))
        offset = sending.offset
        frame, data = await self._read(sending, size)
        sending.crc = crc32c(data, sending.crc)
        ends = offset + size == sending.entry.size_bytes and sending.whole
        if len(data) != size or (ends and sending.crc != sending.entry.crc32c):
            await self._replication.drop_damaged(sending.entry.store, [sending.entry.name])
            raise RemoteProtocolError(f"{sending.entry.name}: damaged on this side while being sent")
        sending.offset = max(sending.offset, offset + size)  # it may have gone on further ahead meanwhile
        if size:
            await call.write(frame)
            self._figures.sent_bytes += size
        if sending.done:
            self._end(sending)

    async def _read(self, sending: Sending, size: int) -> tuple[bytes, bytes | memoryview]:
        """The next data frame and its data."""
        fd, offset = sending.fd, sending.offset
        cached = read_data_frame(fd, sending.transfer, offset, size)
        if cached is not None:
            return cached
        data = await self._replication.store.run(self._lane, lambda: os.pread(fd, size, offset))
        return data_frame(sending.transfer, offset, data), data

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


async def _read(call: Call) -> peer_pb2.PushReply:
    """The next reply; raises UnavailableError when the receiver has closed the stream."""
    reply = await call.read()
    if isinstance(reply, peer_pb2.PushReply):
        return reply
    raise UnavailableError("the receiver has closed the stream")


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Until the event, at most `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
