"""The handshake of a push stream between two real ends, with somebody between them who changes one direction."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable
from typing import NamedTuple
from unittest.mock import patch

from rhino_core.ids import Lane
from rhino_core.security.identity import Identity
from rhino_core.settings import REQUIRED
from worker_runtime.push import opening
from worker_runtime.push.core.noise import HANDSHAKE_BYTES
from worker_runtime.push.core.records import Session, TamperedError
from worker_runtime.push.opening import TOKEN_BYTES, AdmittedSender, Encryption, Ticket

TOKEN = bytes(TOKEN_BYTES)
TIMEOUT_S = 60.0  # for both ends, on a busy machine
XOR, REPLACE, CUT, INSERT = range(4)
End = Session | Exception


class Change(NamedTuple):
    """A change to the bytes of a direction from `place` on."""

    kind: int
    place: int
    data: bytes

    def of(self, start: int, piece: bytes) -> bytes:
        """What becomes of a piece that begins at `start`."""
        if self.kind == CUT:
            return piece[: max(0, self.place - start)]
        if self.kind == INSERT:
            at = self.place - start
            return piece[:at] + self.data + piece[at:] if 0 <= at < len(piece) else piece
        changed = bytearray(piece)
        for at in range(len(piece)):
            if 0 <= (index := start + at - self.place) < len(self.data):
                changed[at] = self.data[index] ^ (piece[at] if self.kind == XOR else 0)
        return bytes(changed)


NO_CHANGE = Change(XOR, 0, b"")


def shake_hands(
    sender: Identity, receiver: Identity, secret: bytes, change: Change, *, to_receiver: bool
) -> tuple[list[End], bool]:
    """What the sender and the receiver come to, and whether one of them got other bytes than the other one has sent."""
    return asyncio.run(_shake_hands((sender, receiver), secret, change, to_receiver=to_receiver))


async def _shake_hands(
    who: tuple[Identity, Identity], secret: bytes, change: Change, *, to_receiver: bool
) -> tuple[list[End], bool]:
    (ours, near), (far, theirs) = socket.socketpair(), socket.socketpair()
    sockets = (ours, near, far, theirs)
    for sock in sockets:
        sock.setblocking(False)

    async def connect(host: str, port: int, first: bytes) -> socket.socket:
        await asyncio.get_running_loop().sock_sendall(ours, first[TOKEN_BYTES:])  # the listener has read the token
        return ours

    sender, receiver = who
    admission = AdmittedSender(sender.name, Lane.BULK)
    to_them, to_us = (Ticket(admission, TOKEN, str(peer), secret) for peer in (receiver, sender))

    async def begun() -> Session:
        return (await opening.as_sender("", 0, to_them, Encryption(sender, REQUIRED)))[1]

    try:
        with patch.object(opening, "connect", connect):
            async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
                ends = [
                    tasks.create_task(_end(ours, begun())),
                    tasks.create_task(_end(theirs, opening.as_receiver(theirs, to_us, Encryption(receiver, REQUIRED)))),
                ]
                ways = [
                    tasks.create_task(_carry(near, far, change if to_receiver else NO_CHANGE)),
                    tasks.create_task(_carry(far, near, NO_CHANGE if to_receiver else change)),
                ]
    finally:
        for sock in sockets:
            sock.close()
    return [end.result() for end in ends], any(way.result() for way in ways)


async def _end(sock: socket.socket, handshake: Awaitable[Session]) -> End:
    """Its session, or why it refuses. It says no more afterwards."""
    try:
        return await handshake
    except (TamperedError, OSError) as error:
        return error
    finally:
        with contextlib.suppress(OSError):  # the sender has closed its socket, if it refuses
            sock.shutdown(socket.SHUT_RDWR)


async def _carry(source: socket.socket, to: socket.socket, change: Change) -> bool:
    """Until the end of one direction. Returns whether the handshake's part of it was changed."""
    loop, was, became = asyncio.get_running_loop(), b"", b""
    try:
        while piece := await loop.sock_recv(source, 4096):
            changed = change.of(len(was), piece)
            was, became = was + piece, became + changed
            await loop.sock_sendall(to, changed)
            if change.kind == CUT and len(was) > change.place:
                break
        to.shutdown(socket.SHUT_WR)
    except OSError:  # an end has refused
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_RDWR)
    return became[:HANDSHAKE_BYTES] != was[:HANDSHAKE_BYTES]
