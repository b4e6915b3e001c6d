"""Accepts push streams of other workers: TCP connections that begin with a token issued over gRPC."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter

from rhino_core.descriptors import USED_UP, LogLimit, Reserve
from rhino_core.ids import Lane
from rhino_core.rpc.binding import listen_error
from rhino_core.security.identity import Identity
from rhino_core.security.transport import PLAIN, Context, Transport
from worker_runtime.push import opening
from worker_runtime.push.alarms import address_of
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.records import UNFINISHED, Session, TamperedError, plain_session
from worker_runtime.push.opening import NOT_ENCRYPTED, TOKEN_BYTES, AdmittedSender, Encryption, Ticket, Tickets
from worker_runtime.push.receiver import Receiver
from worker_runtime.push.sockets import received, tune

log = logging.getLogger(__name__)
PAUSE_S = 0.1  # pause after a connection that could not be accepted
STREAMS_MAX = 4  # per worker and lane: the newest stream, and earlier ones whose files a slow disk delays
UNKNOWN_MAX = 64  # connections that have not presented a token yet; another one replaces the oldest


class PushListener:
    """It listens from the start and serves while `run` runs."""

    def __init__(
        self,
        receiver: Receiver,
        host: str,
        port: int,
        encryption: Encryption = NOT_ENCRYPTED,
        transport: Transport = PLAIN,
    ) -> None:
        """`host` as in the address of the peer service; it may be in brackets.

        Raises UnavailableError if the port is taken, InvalidSettingError for an address of another machine.
        """
        self._receiver = receiver
        self._encryption = encryption
        self._transport = transport
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise listen_error(f"{host}:{port}", error) from error
        self._listener.setblocking(False)
        self._reserve = Reserve()
        self._refusals = LogLimit(asyncio.get_running_loop().time)
        self._tickets = Tickets()
        self._unknown: dict[asyncio.Task[None], None] = {}  # oldest first
        self._streams: set[asyncio.Task[None]] = set()
        self._open: Counter[AdmittedSender] = Counter()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def admit(
        self,
        sender: str,
        lane: Lane,
        caller: Identity | None = None,
        context: Context = None,
        *,
        encrypts: bool = False,
    ) -> Ticket:
        """A ticket for one connection of this worker.

        `caller`: its identity; None: there are no certificates. `context`: of its call. `encrypts`: whether the worker
        encrypts. Raises UnavailableError if it has several unused tickets, PreconditionError for another choice.
        """
        self._encryption.agree(sender, encrypts=encrypts)
        peer = "" if caller is None else str(caller)
        check = None if context is None else self._transport.later_check(context)
        return self._tickets.issue(sender, lane, peer, check, encrypted=encrypts)

    async def run(self) -> None:
        """Serves until cancelled, then ends all streams."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    sock, _ = await loop.sock_accept(self._listener)
                except OSError as error:  # too many open files, or the connection is already gone
                    await self._cannot_accept(error)
                else:
                    self._accepted(sock)
        finally:
            self._listener.close()
            self._reserve.close()
            for task in self._streams:
                task.cancel()
            await asyncio.gather(*self._streams, return_exceptions=True)

    async def _cannot_accept(self, error: OSError) -> None:
        if (left_out := self._refusals.due()) is not None:
            extra = {"error": str(error), "times_before": left_out}
            log.warning("cannot accept a push stream", extra=extra)
        turned_away = error.errno in USED_UP and self._reserve.turn_away(self._listener)
        await asyncio.sleep(0 if turned_away else PAUSE_S)

    def _accepted(self, sock: socket.socket) -> None:
        if len(self._unknown) >= UNKNOWN_MAX:
            oldest = next(iter(self._unknown))  # a worker presents its token at once
            del self._unknown[oldest]
            oldest.cancel()
        task = asyncio.create_task(self._serve(sock), name="push stream")
        self._streams.add(task)
        self._unknown[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._streams.discard(task)
        self._unknown.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a push stream has failed", exc_info=error)

    async def _serve(self, sock: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            admitted = await self._admitted(sock)
            self._unknown.pop(task, None)
            if admitted is None:
                self._log_refusal(sock)
                return
            ticket, session = admitted
            admission = ticket.admission
            if self._open[admission] >= STREAMS_MAX:
                extra = {"peer": admission.sender, "lane": admission.lane.value, "streams": STREAMS_MAX}
                log.warning("a push stream was refused: former ones have not ended yet", extra=extra)
            else:
                await self._run(Connection(sock, session, ticket.check), admission)
        except OSError as error:
            log.info("a push stream ended before it began", extra={"error": str(error)})
        finally:
            sock.close()

    async def _run(self, connection: Connection, admission: AdmittedSender) -> None:
        tune(connection.sock)
        self._open[admission] += 1
        try:
            await self._receiver.serve(connection, admission.sender, admission.lane)
        finally:
            self._open[admission] -= 1
            self._open += Counter()  # removes counts of zero

    def _log_refusal(self, sock: socket.socket) -> None:
        self._receiver.alarms.refused(address_of(sock))
        if (left_out := self._refusals.due()) is not None:
            extra = {"from": str(sock.getpeername()), "times_before": left_out}
            log.warning("a connection without a valid token was refused", extra=extra)

    async def _admitted(self, sock: socket.socket) -> tuple[Ticket, Session] | None:
        """The ticket of the connection, and its session. None: it presents no valid token in time. Raises OSError."""
        sock.setblocking(False)
        deadline = asyncio.get_running_loop().time() + opening.TOKEN_S
        try:
            async with asyncio.timeout_at(deadline):
                ticket = self._tickets.redeem(await received(sock, TOKEN_BYTES))
        except TimeoutError:
            return None
        return None if ticket is None else (ticket, await self._session(sock, ticket, deadline))

    async def _session(self, sock: socket.socket, ticket: Ticket, deadline: float) -> Session:
        """Raises OSError. Nobody else can use the ticket, so its sender hears nothing of a thief but the alarm."""
        if not ticket.secret:
            return plain_session()
        try:
            async with asyncio.timeout_at(deadline):
                return await opening.as_receiver(sock, ticket, self._encryption)
        except TamperedError as error:
            refusal = error
        except OSError as error:  # also a time-out
            refusal = TamperedError(UNFINISHED, f"no handshake within {opening.TOKEN_S} s: {error or 'silence'}")
        admission = ticket.admission
        self._receiver.alarms.tampered(admission.sender, admission.lane, refusal, address_of(sock))
        raise ConnectionAbortedError(str(refusal)) from refusal
