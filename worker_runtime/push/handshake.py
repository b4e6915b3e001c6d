"""The beginning of an encrypted push stream: both ends exchange random values, and prove that they have the secret.

docs/design/push-encryption.md specifies it. Both functions raise TamperedError if the other end does not have the keys,
and OSError. The sockets do not block.
"""

from __future__ import annotations

import asyncio
import secrets
import socket

from worker_runtime.push.core.keys import RANDOM_BYTES, Handshake
from worker_runtime.push.core.records import FINISHED_BYTES, receiver_ends, sender_ends
from worker_runtime.push.core.session import Session
from worker_runtime.push.encryption import Encryption
from worker_runtime.push.sockets import CONNECT_TIMEOUT_S, connect
from worker_runtime.push.tickets import Ticket


async def as_sender(host: str, port: int, ticket: Ticket, encryption: Encryption) -> tuple[socket.socket, Session]:
    """Connects to the push listener of the worker that has given the ticket."""
    mine = secrets.token_bytes(RANDOM_BYTES)
    sock = await connect(host, port, ticket.token + mine)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            theirs = await _receive(sock, RANDOM_BYTES)
            about = _handshake(ticket, sender=str(encryption.identity), receiver=ticket.peer, randoms=(mine, theirs))
            sealer, opener = sender_ends(ticket.secret, about)
            opener.check_finished(await _receive(sock, FINISHED_BYTES), about.transcript())
            await asyncio.get_running_loop().sock_sendall(sock, sealer.finished(about.transcript()))
    except BaseException:
        sock.close()
        raise
    return sock, Session(sealer, opener)


async def as_receiver(sock: socket.socket, ticket: Ticket, encryption: Encryption) -> Session:
    """The connection has presented the token of this ticket. The caller limits the time."""
    mine, theirs = secrets.token_bytes(RANDOM_BYTES), await _receive(sock, RANDOM_BYTES)
    about = _handshake(ticket, sender=ticket.peer, receiver=str(encryption.identity), randoms=(theirs, mine))
    sealer, opener = receiver_ends(ticket.secret, about)
    await asyncio.get_running_loop().sock_sendall(sock, mine + sealer.finished(about.transcript()))
    opener.check_finished(await _receive(sock, FINISHED_BYTES), about.transcript())
    return Session(sealer, opener)


def _handshake(ticket: Ticket, *, sender: str, receiver: str, randoms: tuple[bytes, bytes]) -> Handshake:
    """`randoms`: of the sender and of the receiver."""
    return Handshake(ticket.suite, ticket.token, ticket.admission.lane.value, sender, receiver, *randoms)


async def _receive(sock: socket.socket, size: int) -> bytes:
    """Exactly so many bytes: what follows them stays in the socket."""
    received = b""
    while len(received) < size:
        piece = await asyncio.get_running_loop().sock_recv(sock, size - len(received))
        if not piece:
            raise ConnectionResetError("the other end has refused the connection")
        received += piece
    return received
