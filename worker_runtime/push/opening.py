"""Opens push streams to other workers: a ticket over gRPC, then a connection that presents it."""

from __future__ import annotations

from rhino_core.errors import RemoteProtocolError
from rhino_core.ids import Lane, Worker
from rhino_core.protocol import PROTOCOL, check_protocol
from rhino_core.rpc.channel import call, worker_channel
from rhino_core.rpc.convert import worker_of, worker_to_pb
from rhino_core.security.transport import PLAIN, Transport
from rhino_pb import peer_pb2, peer_pb2_grpc
from worker_runtime.codec import LANE_TO_PB
from worker_runtime.push import handshake
from worker_runtime.push.connection import Connection
from worker_runtime.push.core.keys import NO_SUITE, SECRET_BYTES
from worker_runtime.push.encryption import NOT_ENCRYPTED, Encryption
from worker_runtime.push.sockets import CONNECT_TIMEOUT_S, connect
from worker_runtime.push.tickets import TOKEN_BYTES, Admission, Ticket


class Opening:
    """How this sidecar opens streams: over which transport, and with which encryption."""

    def __init__(self, transport: Transport = PLAIN, encryption: Encryption = NOT_ENCRYPTED) -> None:
        self._transport = transport
        self._encryption = encryption

    async def connect(self, me: Worker, peer: Worker, lane: Lane) -> Connection:
        """Returns a connection that has presented its token. Raises RhinoError, OSError.

        Among them are PreconditionError, if the other sidecar must or cannot encrypt, and TamperedError.
        """
        request = peer_pb2.OpenPushRequest(
            sender=worker_to_pb(me), lane=LANE_TO_PB[lane], suites=self._encryption.suites, protocol=PROTOCOL
        )
        doing = f"push to {peer.worker_id} at {peer.peer_address}"
        async with worker_channel(peer, self._transport) as channel:
            stub = peer_pb2_grpc.PeerStub(channel)
            reply = await call(doing, lambda: stub.OpenPush(request, timeout=CONNECT_TIMEOUT_S))
        check_protocol(f"sidecar {peer.worker_id!r}", reply.protocol, here=f"sidecar {me.worker_id!r}")
        if (receiver := worker_of(reply.receiver)).worker_id != peer.worker_id:
            raise RemoteProtocolError(f"{peer.peer_address} is {receiver.worker_id}, not {peer.worker_id}")
        host = peer.peer_address.rpartition(":")[0].strip("[]")
        suite = self._encryption.confirm(reply.suite, peer.worker_id)
        if suite == NO_SUITE:
            return Connection(await connect(host, reply.port, reply.token))
        if len(reply.token) != TOKEN_BYTES or len(reply.secret) != SECRET_BYTES:
            raise RemoteProtocolError(f"{peer.worker_id}: a ticket with a token or secret of another length")
        other = str(self._encryption.identity_of(peer.worker_id))
        ticket = Ticket(Admission(me.worker_id, lane), reply.token, suite, other, reply.secret)
        return Connection(*await handshake.as_sender(host, reply.port, ticket, self._encryption))
