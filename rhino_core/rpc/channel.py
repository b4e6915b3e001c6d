"""Channels, deadlines and retries for all calls to other Rhino processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from rhino_core.errors import RhinoError
from rhino_core.retry import calls, calls_sync
from rhino_core.rpc.gate import checked
from rhino_core.rpc.status import error_of

T = TypeVar("T")

# Keepalive detects a peer that vanished silently. The message limit leaves room for a chunk and its frame.
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.http2.bdp_probe", 0),  # otherwise gRPC buffers many megabytes when a stream's reader is slow
    ("grpc.http2.lookahead_bytes", 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # also the time limit of one connection attempt: a busy machine needs it
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
REQUEST_BYTES_MAX = 4 * 1024 * 1024
# Servers probe, too: a driver that vanished must not count as connected forever.
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),  # the default is two minutes, also for a silent connection
    ("grpc.max_connection_idle_ms", 300_000),  # without a call; the client reconnects for its next one
    ("grpc.max_concurrent_streams", 1024),  # concurrent calls per connection
)


def aio_channel(address: str) -> grpc.aio.Channel:
    """Returns a channel to "host:port" or "unix:///path", with its own connection."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


def sync_channel(address: str) -> grpc.Channel:
    """Like `aio_channel`, for blocking callers."""
    return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)


def _admitted(reply: T, doing: str) -> T:
    """Checks the reply at the gate. Raises RemoteProtocolError if it fails."""
    if isinstance(reply, Message):
        checked(reply, doing)
    return reply


async def call(doing: str, attempt: Callable[[], Awaitable[T]], *, retry_for_s: float = 0.0) -> T:
    """Awaits `attempt()`. Failures become RhinoErrors whose message names `doing`.

    With `retry_for_s` > 0, UNAVAILABLE is retried with backoff for that long: use this for idempotent calls only.
    The attempt itself must carry a deadline (timeout=...).
    """

    async def once() -> T:
        try:
            return _admitted(await attempt(), doing)
        except grpc.RpcError as error:
            raise error_of(error, doing) from error

    return await calls(retry_for_s)(once)


def call_sync(doing: str, attempt: Callable[[], T], *, retry_for_s: float = 0.0) -> T:
    """Like `call`, but blocking."""

    def once() -> T:
        try:
            return _admitted(attempt(), doing)
        except grpc.RpcError as error:
            raise error_of(error, doing) from error

    return calls_sync(retry_for_s)(once)


__all__ = ["CHANNEL_OPTIONS", "SERVER_OPTIONS", "RhinoError", "aio_channel", "call", "call_sync", "sync_channel"]
