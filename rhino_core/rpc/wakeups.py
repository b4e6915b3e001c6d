"""Keeps gRPC's thread from waiting for the event loop.

A thread of grpc.aio tells the event loop of each finished operation with one byte on a socket pair. The loop then
handles all finished operations, but takes only one byte. When a busy loop leaves some hundred bytes behind, the socket
is full. The thread then waits until most of them are taken, one in each round of the loop, and meanwhile no call of the
process makes progress. With 1000 sidecars these pauses were 0.1 to 0.4 s.
"""

from __future__ import annotations

import socket
from typing import Any

import grpc.aio

ALL = 1 << 16  # bytes: more than the socket can hold


class WakeUps(socket.socket):
    """The loop's end of the socket pair: it takes all bytes that are there.

    No operation is missed: the thread adds each to its queue before it sends the byte, and the loop looks at the queue
    after it has taken the bytes.
    """

    def recv(self, size: int, flags: int = 0) -> bytes:
        return super().recv(ALL, flags)[:size]


def start_grpc() -> None:
    """Starts grpc.aio for the running event loop, with `WakeUps`. It has no effect if grpc.aio was started before."""
    original = socket.socketpair

    def pair(*arguments: Any, **options: Any) -> tuple[socket.socket, socket.socket]:
        reads, writes = original(*arguments, **options)
        return WakeUps(reads.family, reads.type, reads.proto, reads.detach()), writes

    socket.socketpair = pair
    try:
        grpc.aio.init_grpc_aio()  # type: ignore[attr-defined]  # the stubs lack it
    finally:
        socket.socketpair = original
