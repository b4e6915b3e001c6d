"""All inbound push streams of a sidecar: decisions, acknowledgements, and credit for starved streams."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging

from rhino_core.errors import AccessDeniedError
from rhino_core.ids import Lane
from worker_runtime.codec import ack_to_pb, refusal_to_pb
from worker_runtime.protocol import events as ev
from worker_runtime.protocol.credit import GrantPool
from worker_runtime.push.alarms import Alarms
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.framing import LARGE_MESSAGE_BYTES_MAX, packed
from worker_runtime.push.core.incoming import IncomingFile
from worker_runtime.push.inbound_stream import InboundStream
from worker_runtime.push.message_memory import MessageMemory
from worker_runtime.replication import Replication
from worker_runtime.statistics import Statistics

END_S = 1.0  # time that a replaced stream has to save its unfinished files; its disk may hang
TAKE_BACK_S = 5.0  # interval between checks of all streams
log = logging.getLogger(__name__)


class Receiver:
    """`Upstreams` of `Replication`, and `Streams` of each stream."""

    def __init__(
        self, replication: Replication, statistics: Statistics, grants: GrantPool, alarms: Alarms | None = None
    ) -> None:
        """`alarms`: None: they are in no file of the audit log."""
        self.replication = replication
        self.statistics = statistics
        self.grants = grants
        self.alarms = alarms if alarms is not None else Alarms(statistics)
        self.memory = MessageMemory(LARGE_MESSAGE_BYTES_MAX)
        self._streams: dict[tuple[str, Lane], InboundStream] = {}
        self._by_grant: dict[int, InboundStream] = {}
        self._decisions: dict[int, asyncio.Future[bool]] = {}
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        """Until cancelled: ends streams with unused credit that others need, and those whose senders count no more."""
        while True:
            await asyncio.sleep(TAKE_BACK_S)
            self._check_senders()
            for grant in self.grants.take_back():
                stream = self._by_grant[grant]
                extra = {"peer": stream.upstream, "lane": stream.lane.value}
                log.warning("push stream ended: it sends nothing, and others wait for its credit", extra=extra)
                stream.end()

    def _check_senders(self) -> None:
        """The sender opens another stream, if it has a valid certificate."""
        for stream in [*self._by_grant.values()]:
            if stream.connection.check is None or stream.ended:
                continue
            try:
                stream.connection.check()
            except AccessDeniedError as error:
                extra = {"peer": stream.upstream, "lane": stream.lane.value, "error": str(error)}
                log.warning("push stream ended: the certificate of its sender counts no more", extra=extra)
                stream.end()

    def decide(self, transfer: int, *, accept: bool) -> None:
        decision = self._decisions.pop(transfer, None)
        if decision is not None and not decision.done():
            decision.set_result(accept)

    def ack(self, ack: ev.SendAck) -> None:
        if stream := self._streams.get((ack.upstream, ack.lane)):
            stream.connection.post(packed(ack_to_pb(ack)))

    def refuse(self, refusal: ev.SendRefusal) -> None:
        if stream := self._streams.get((refusal.upstream, refusal.lane)):
            stream.connection.post(packed(refusal_to_pb(refusal)))

    async def decision(self, stream: InboundStream, file: IncomingFile) -> int | None:
        """Asks the machine whether it accepts the file. Returns its number of the transfer, or None.

        The end of the stream cancels the question, because a stopped machine never answers.
        """
        number = file.number = next(self._numbers)
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._decisions[number] = decided
        stream.undecided.add(decided)
        self.replication.post(ev.BeginReceived(stream.upstream, number, file.entry, file.epoch, file.chain))
        if stream.ended:
            decided.cancel()  # does nothing if the machine has answered already
        try:
            return number if await decided else None
        except asyncio.CancelledError:
            self.replication.post(ev.TransferFailed(number, None))  # it may still wait for the manager
            raise
        finally:
            stream.undecided.discard(decided)
            self._decisions.pop(number, None)

    async def serve(self, connection: Connection, sender: str, lane: Lane) -> None:
        """Serves one stream, from Welcome to its end."""
        if (older := self._streams.get((sender, lane))) is not None:
            older.end()  # the sender has abandoned that stream and continues where it broke
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await older.read.wait()
            if (other := self._streams.get((sender, lane))) not in (None, older):
                other.end()  # a concurrent call waited for the same stream
        grant, credit = self.grants.open()
        stream = InboundStream(self, connection, sender, lane, grant)
        self._streams[sender, lane] = self._by_grant[grant] = stream
        try:
            await stream.run(credit)
        finally:
            self.left(stream)
            del self._by_grant[grant]
            self.grants.close(grant)
            self.top_up_starved()

    def left(self, stream: InboundStream) -> None:
        """The stream is over, so no reply may use it any more."""
        self._streams = {key: other for key, other in self._streams.items() if other is not stream}

    def top_up_starved(self) -> None:
        for grant in self.grants.starved():
            if credit := self.grants.top_up(grant):
                self._by_grant[grant].give_credit(credit)
