"""Opens push streams: a ticket over gRPC, then a connection with its token, and with encryption a handshake.

A ticket admits one connection of one worker on one lane, for a few seconds. Both sidecars have to encrypt, or neither.
docs/design/push-encryption.md specifies the handshake. Both ends of it raise TamperedError if the other end does not
have the ticket's secret or means another stream, and OSError. The sockets do not block.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from rhino_core.errors import PreconditionError, RemoteProtocolError, UnavailableError
from rhino_core.ids import Lane, Worker
from rhino_core.rpc.channel import call, worker_channel
from rhino_core.rpc.convert import worker_of, worker_to_pb
from rhino_core.security.identity import Identity, Role, parse
from rhino_core.security.transport import PLAIN, Transport
from rhino_core.settings import REQUIRED
from rhino_core.version import PROTOCOL, check_protocol
from rhino_pb import peer_pb2, peer_pb2_grpc
from worker_runtime.codec import LANE_TO_PB
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.noise import HANDSHAKE_BYTES, PSK_BYTES, Handshake
from worker_runtime.push.core.records import HANDSHAKE, Session, TamperedError, initiator_session, responder_session
from worker_runtime.push.sockets import CONNECT_TIMEOUT_S, connect, received

log = logging.getLogger(__name__)
LABEL = b"rhino push v1"
TOKEN_BYTES = 16  # of the token, which is the public id of an encrypted stream
SECRET_BYTES = PSK_BYTES
TOKEN_S = 5.0  # lifetime of an unused token, and the time in which a connection has to present one
STREAM_S = 3600.0  # age at which a sender opens a stream anew, so that TLS checks the receiver's certificate again
TOKENS_MAX = 4  # unused tokens per worker and lane
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Encryption:
    """The choice of one sidecar, for all its streams.

    `identity`: of its certificate; None: it has none, so nothing can be encrypted. `mode`: the setting.
    """

    identity: Identity | None
    mode: str = REQUIRED

    @property
    def is_on(self) -> bool:
        return self.identity is not None and self.mode == REQUIRED

    def agree(self, other: str, *, encrypts: bool) -> None:
        """Raises PreconditionError unless the other sidecar encrypts the stream as this one does."""
        if encrypts != self.is_on:
            raise PreconditionError(
                f"push streams of sidecar {other!r} are {_in_words(encrypts)}, and this sidecar accepts only those "
                f"that are {_in_words(self.is_on)}: give both the same --push-encryption"
            )

    def identity_of(self, worker_id: str) -> Identity:
        """The identity of another worker of this cluster, as checked by TLS."""
        if self.identity is None:
            raise RemoteProtocolError(f"a stream of worker {worker_id!r} is encrypted, but there are no certificates")
        return Identity(self.identity.cluster, Role.WORKER, worker_id)

    def answering(self, sender: str) -> str:
        """This sidecar, as the sender with this identity knows it. A cluster has two names while its key changes."""
        if self.identity is None:
            raise RemoteProtocolError(f"a stream of {sender} is encrypted, but there are no certificates")
        return str(replace(self.identity, cluster=parse(sender).cluster))


NOT_ENCRYPTED = Encryption(None)


def chosen(transport: Transport, mode: str) -> Encryption:
    """The encryption of a sidecar with this transport. `mode`: the setting; empty: as secure as the transport."""
    encryption = Encryption(transport.identity, mode or REQUIRED)
    if transport.identity is not None and not encryption.is_on:
        log.warning("files on their way to other sidecars may be plain", extra={"push_encryption": mode})
    return encryption


def _in_words(encrypts: bool) -> str:
    return "encrypted" if encrypts else "not encrypted"


@dataclass(frozen=True, slots=True)
class AdmittedSender:
    """The sender and lane admitted by a token."""

    sender: str
    lane: Lane


@dataclass(frozen=True, slots=True)
class Ticket:
    """A ticket, as one end knows it.

    `peer`: the URI in the other end's certificate. `secret`: of the stream. Without encryption, both are empty.
    `check`: as of `Connection`.
    """

    admission: AdmittedSender
    token: bytes
    peer: str
    secret: bytes
    check: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"Ticket({self.admission}, peer={self.peer!r})"  # neither token nor secret

    def prologue(self, *, sender: str, receiver: str) -> bytes:
        """The common knowledge of both ends about the stream, each field behind its length. Nothing of it is secret."""
        texts = (self.admission.lane.value, sender, receiver)
        fields = (LABEL, self.token, *(text.encode() for text in texts))
        return b"".join(_LENGTH.pack(len(field)) + field for field in fields)


class Tickets:
    """The tickets not presented yet."""

    def __init__(self) -> None:
        self._unused: dict[bytes, Ticket] = {}

    def issue(
        self,
        sender: str,
        lane: Lane,
        peer: str = "",
        check: Callable[[], None] | None = None,
        *,
        encrypted: bool = False,
    ) -> Ticket:
        """A ticket for this worker. `peer`: the URI in its certificate.

        Raises UnavailableError if it has several unused ones.
        """
        admission = AdmittedSender(sender, lane)
        if sum(other.admission == admission for other in self._unused.values()) >= TOKENS_MAX:
            raise UnavailableError(
                f"{sender}, lane {lane.value}: {TOKENS_MAX} tokens have not been shown yet; try again in {TOKEN_S} s"
            )
        secret = secrets.token_bytes(SECRET_BYTES) if encrypted else b""
        ticket = Ticket(admission, secrets.token_bytes(TOKEN_BYTES), peer, secret, check)
        self._unused[ticket.token] = ticket
        asyncio.get_running_loop().call_later(TOKEN_S, self._unused.pop, ticket.token, None)
        return ticket

    def redeem(self, token: bytes) -> Ticket | None:
        """The ticket of this token. Nobody can present it again. None: there is none."""
        return self._unused.pop(token, None)


class Opening:
    """The opening of this sidecar's streams: transport and encryption."""

    def __init__(self, transport: Transport = PLAIN, encryption: Encryption = NOT_ENCRYPTED) -> None:
        self._transport = transport
        self._encryption = encryption

    @property
    def moment(self) -> tuple[int, float]:
        """Edition of the certificates and the time, for `is_due`."""
        return self._transport.edition, asyncio.get_running_loop().time()

    def is_due(self, opened: tuple[int, float]) -> bool:
        """Whether a stream has to be opened anew. `opened`: the `moment` of its opening."""
        edition, now_s = self.moment
        return self._transport.identity is not None and (edition != opened[0] or now_s - opened[1] >= STREAM_S)

    async def connect(self, me: Worker, peer: Worker, lane: Lane) -> Connection:
        """Returns a connection after it has presented its token. Raises RhinoError, OSError.

        Among them are PreconditionError, if the other sidecar must or cannot encrypt, and TamperedError.
        """
        request = peer_pb2.OpenPushRequest(
            sender=worker_to_pb(me), lane=LANE_TO_PB[lane], encrypted=self._encryption.is_on, protocol=PROTOCOL
        )
        doing = f"push to {peer.worker_id} at {peer.peer_address}"
        async with worker_channel(peer, self._transport) as channel:
            stub = peer_pb2_grpc.PeerStub(channel)
            reply = await call(doing, lambda: stub.OpenPush(request, timeout=CONNECT_TIMEOUT_S))
        check_protocol(f"sidecar {peer.worker_id!r}", reply.protocol, here=f"sidecar {me.worker_id!r}")
        if (receiver := worker_of(reply.receiver)).worker_id != peer.worker_id:
            raise RemoteProtocolError(f"{peer.peer_address} is {receiver.worker_id}, not {peer.worker_id}")
        host = peer.peer_address.rpartition(":")[0].strip("[]")
        self._encryption.agree(peer.worker_id, encrypts=bool(reply.secret))
        if not reply.secret:
            return Connection(await connect(host, reply.port, reply.token))
        if len(reply.token) != TOKEN_BYTES or len(reply.secret) != SECRET_BYTES:
            raise RemoteProtocolError(f"{peer.worker_id}: a ticket with a token or secret of another length")
        other = str(self._encryption.identity_of(peer.worker_id))
        ticket = Ticket(AdmittedSender(me.worker_id, lane), reply.token, other, reply.secret)
        return Connection(*await as_sender(host, reply.port, ticket, self._encryption))


async def as_sender(host: str, port: int, ticket: Ticket, encryption: Encryption) -> tuple[socket.socket, Session]:
    """Connects to the push listener of the worker that has given the ticket."""
    prologue = ticket.prologue(sender=str(encryption.identity), receiver=ticket.peer)
    noise = Handshake(ticket.secret, prologue, X25519PrivateKey.generate())
    sock = await connect(host, port, ticket.token + noise.write_first())
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            noise.read_second(await _message(sock))
    except InvalidTag:
        sock.close()
        raise _no_secret() from None
    except BaseException:
        sock.close()
        raise
    return sock, initiator_session(noise.split())


async def as_receiver(sock: socket.socket, ticket: Ticket, encryption: Encryption) -> Session:
    """The connection has presented the token of this ticket. The caller limits the time."""
    prologue = ticket.prologue(sender=ticket.peer, receiver=encryption.answering(ticket.peer))
    noise = Handshake(ticket.secret, prologue, X25519PrivateKey.generate())
    try:
        noise.read_first(await _message(sock))
        second = noise.write_second()
    except InvalidTag:
        raise _no_secret() from None
    await asyncio.get_running_loop().sock_sendall(sock, second)
    return responder_session(noise.split())


def _no_secret() -> TamperedError:
    return TamperedError(HANDSHAKE, "the other end does not have the secret of this stream, or means another one")


async def _message(sock: socket.socket) -> bytes:
    """A handshake message."""
    message = await received(sock, HANDSHAKE_BYTES)
    if len(message) < HANDSHAKE_BYTES:
        raise ConnectionResetError("the other end has refused the connection")
    return message
