"""Channels, deadlines and retries: every call to another Rhino process goes through here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import grpc.aio
import tenacity

from rhino.errors import RhinoError, UnavailableError
from rhino.rpc.status import error_of

T = TypeVar("T")

# Keepalive finds a silently dead peer; the message limit leaves room for a chunk and its frame.
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.http2.bdp_probe", 0),  # else gRPC buffers many megabytes of a stream whose reader is slower than the network
    ("grpc.http2.lookahead_bytes", 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # also what one attempt to connect may take: a busy machine needs it
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
# Servers probe as well: a driver that has vanished must not count as connected for ever.
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.so_reuseport", 0),
)


def aio_channel(address: str) -> grpc.aio.Channel:
    """A channel of its own connection to "host:port" or "unix:///path"."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


def sync_channel(address: str) -> grpc.Channel:
    """As `aio_channel`, for blocking callers."""
    return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)


async def call(doing: str, attempt: Callable[[], Awaitable[T]], *, retry_for_s: float = 0.0) -> T:
    """Awaits `attempt()`; failures become RhinoErrors that name `doing`.

    With `retry_for_s` > 0, UNAVAILABLE is tried again with backoff for that long: idempotent calls only.
    The attempt itself must carry a deadline (timeout=...).
    """

    async def once() -> T:
        try:
            return await attempt()
        except grpc.RpcError as error:
            raise error_of(error, doing) from error

    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(UnavailableError),
        wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
        stop=tenacity.stop_after_delay(retry_for_s) if retry_for_s > 0 else tenacity.stop_after_attempt(1),
        reraise=True,
    )
    return await retrying(once)


def call_sync(doing: str, attempt: Callable[[], T], *, retry_for_s: float = 0.0) -> T:
    """As `call`, blocking."""

    def once() -> T:
        try:
            return attempt()
        except grpc.RpcError as error:
            raise error_of(error, doing) from error

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(UnavailableError),
        wait=tenacity.wait_random_exponential(multiplier=0.05, max=1.0),
        stop=tenacity.stop_after_delay(retry_for_s) if retry_for_s > 0 else tenacity.stop_after_attempt(1),
        reraise=True,
    )
    return retrying(once)


__all__ = ["CHANNEL_OPTIONS", "SERVER_OPTIONS", "RhinoError", "aio_channel", "call", "call_sync", "sync_channel"]
