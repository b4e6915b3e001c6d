"""Sockets of push streams: their options, and blocking calls, for threads."""

from __future__ import annotations

import asyncio
import select
import socket
import struct

CONNECT_TIMEOUT_S = 5.0
_INFO_BYTES, _BYTES_ACKED = 128, 120  # in the kernel's `struct tcp_info`; `tcpi_bytes_acked` is older than Linux 4.2
_DEAD_MS = 15_000  # time after which a peer that sends no TCP acknowledgements counts as dead


async def connect(host: str, port: int, first: bytes) -> socket.socket:
    """A connection to a worker's push listener, after it has sent these bytes: its token. Raises OSError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = addresses[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        tune(sock)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await loop.sock_connect(sock, address)
            await loop.sock_sendall(sock, first)
    except BaseException:
        sock.close()
        raise
    return sock


async def received(sock: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer if the connection ends before. Later bytes stay in the socket. Raises OSError."""
    found = b""
    while len(found) < size:
        piece = await asyncio.get_running_loop().sock_recv(sock, size - len(found))
        if not piece:
            break
        found += piece
    return found


def tune(sock: socket.socket) -> None:
    """Sets socket options: send small messages at once, and detect a silently dead peer."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("KEEPIDLE", 10), ("KEEPINTVL", 2), ("KEEPCNT", 3), ("USER_TIMEOUT", _DEAD_MS)):
        option = getattr(socket, f"TCP_{name}", None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def taken_bytes(sock: socket.socket) -> int:
    """How many bytes the machine at the other end has taken so far. Raises OSError."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    taken: int = struct.unpack_from("=Q", info, _BYTES_ACKED)[0]
    return taken


def limit_receive(sock: socket.socket, timeout_s: int) -> None:
    """Receiving calls end after this time, even if nothing has arrived."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", timeout_s, 0))


def send_all(sock: socket.socket, head: bytes | bytearray | memoryview, data: memoryview) -> None:
    """Sends the head, then the data. Call it in a thread. Raises OSError."""
    pieces = [memoryview(head), data]
    while pieces:
        try:
            sent = sock.sendmsg(pieces)
        except BlockingIOError:
            wait_for(sock, select.POLLOUT)
            continue
        while pieces and sent >= len(pieces[0]):
            sent -= len(pieces.pop(0))
        if sent:
            pieces[0] = pieces[0][sent:]


def wait_for(sock: socket.socket, event: int, timeout_ms: int | None = None) -> bool:
    """Returns whether the event occurred in time. Needed because uvloop makes a watched socket non-blocking."""
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(timeout_ms))
