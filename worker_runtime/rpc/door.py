"""Where push streams of other workers come in: TCP connections that begin with a token handed out over gRPC."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from dataclasses import dataclass

from rhino.ids import Lane
from worker_runtime.rpc.receiver import Receiver
from worker_runtime.rpc.wire import Wire, tune

log = logging.getLogger(__name__)
TOKEN_BYTES = 16
TOKEN_S = 5.0  # from its issue until it has been shown


@dataclass(frozen=True, slots=True)
class _Ticket:
    sender: str
    lane: Lane


class Door:
    """Listens from the start; serves while `run` runs."""

    def __init__(self, receiver: Receiver, host: str, port: int) -> None:
        """`host` as in the peer service's address, which may be in brackets. Raises OSError when the port is taken."""
        self._receiver = receiver
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128)
        self._listener.setblocking(False)
        self._tickets: dict[bytes, _Ticket] = {}
        self._streams: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def admit(self, sender: str, lane: Lane) -> bytes:
        """A token for one connection of this worker."""
        token = secrets.token_bytes(TOKEN_BYTES)
        self._tickets[token] = _Ticket(sender, lane)
        asyncio.get_running_loop().call_later(TOKEN_S, self._tickets.pop, token, None)
        return token

    async def run(self) -> None:
        """Until cancelled; then all streams end."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                sock, _ = await loop.sock_accept(self._listener)
                task = asyncio.create_task(self._serve(sock), name="push stream")
                self._streams.add(task)
                task.add_done_callback(self._ended)
        finally:
            self._listener.close()
            for task in self._streams:
                task.cancel()
            await asyncio.gather(*self._streams, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._streams.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a push stream has failed", exc_info=error)

    async def _serve(self, sock: socket.socket) -> None:
        try:
            ticket = await self._ticket(sock)
            if ticket is None:
                log.warning("a connection without a valid token was refused", extra={"from": str(sock.getpeername())})
                return
            tune(sock)
            await self._receiver.serve(Wire(sock), ticket.sender, ticket.lane)
        except OSError as error:
            log.info("a push stream ended before it began", extra={"error": str(error)})
        finally:
            sock.close()

    async def _ticket(self, sock: socket.socket) -> _Ticket | None:
        sock.setblocking(False)
        token = b""
        try:
            async with asyncio.timeout(TOKEN_S):
                while len(token) < TOKEN_BYTES:
                    piece = await asyncio.get_running_loop().sock_recv(sock, TOKEN_BYTES - len(token))
                    if not piece:
                        return None
                    token += piece
        except TimeoutError:
            return None
        return self._tickets.pop(token, None)
