"""Channels, deadlines and retries for all calls to other Rhino processes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from rhino_core.ids import Worker
from rhino_core.retry import calls_sync
from rhino_core.rpc.gate import checked
from rhino_core.rpc.status import error_of
from rhino_core.security.identity import Role
from rhino_core.security.transport import PLAIN, THE_MANAGER, Expected, Transport

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
    ("grpc.min_reconnect_backoff_ms", 1_000),  # the time limit of one connection attempt: a busy machine needs it
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)
# A thousand sidecars connect within seconds after the manager has started, and each handshake costs it milliseconds.
# An attempt that ends too early has cost them, and is made again: the manager would be busy with nothing else.
_ATTEMPT = "grpc.min_reconnect_backoff_ms"
MANAGER_OPTIONS = tuple((name, 5_000 if name == _ATTEMPT else value) for name, value in CHANNEL_OPTIONS)
# Of streams, and of calls that the server ends when nothing moves any more. Keepalive detects a dead peer.
CALL_S_MAX = 30 * 24 * 3600.0
# Each call of a connection may have one unfinished message, and gRPC has no time limit for it. So many tasks of one
# other worker may ask a sidecar at once.
REQUEST_BYTES_MAX = 4 * 1024 * 1024
CALLS_MAX = 128
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
    ("grpc.max_connection_age_ms", 3_600_000),  # new calls then begin with a handshake; those under way go on
    ("grpc.max_connection_idle_ms", 300_000),  # without a call; the client reconnects for its next one
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
)


def several(address: str) -> bool:
    return "," in address


def _target(address: str) -> str:
    """The address in the form of gRPC. Of several addresses, gRPC takes only numbers of one family."""
    if not several(address):
        return address
    found: list[tuple[str, str]] = []
    for one in address.split(","):
        host, _, port = one.rpartition(":")
        with suppress(OSError):  # another name may be known, and the caller resolves the list again
            for family, *_, place in socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
                if family == socket.AF_INET:
                    found.append(("ipv4", f"{place[0]}:{port}"))
                elif family == socket.AF_INET6:
                    found.append(("ipv6", f"[{place[0]}]:{port}"))
    for scheme in ("ipv4", "ipv6"):
        if numbers := [number for kind, number in found if kind == scheme]:
            return f"{scheme}:{','.join(dict.fromkeys(numbers))}"
    return address.partition(",")[0]  # gRPC has the error, and resolves it again


def aio_channel(address: str, transport: Transport = PLAIN, expected: Expected = THE_MANAGER) -> grpc.aio.Channel:
    """Returns a channel to "host:port" or "unix:///path", with its own connection. A Unix socket is never encrypted.

    With commas: to the first of several "host:port" that answers. Their names are resolved now.
    """
    used = PLAIN if address.startswith("unix:") else transport
    return used.channel(_target(address), expected, MANAGER_OPTIONS if expected == THE_MANAGER else CHANNEL_OPTIONS)


def sync_channel(address: str, transport: Transport = PLAIN, expected: Expected = THE_MANAGER) -> grpc.Channel:
    """Like `aio_channel`, for blocking callers."""
    used = PLAIN if address.startswith("unix:") else transport
    return used.sync_channel(
        _target(address), expected, MANAGER_OPTIONS if expected == THE_MANAGER else CHANNEL_OPTIONS
    )


def worker_channel(worker: Worker, transport: Transport) -> grpc.aio.Channel:
    """Returns a channel to the sidecar of a worker."""
    return aio_channel(worker.peer_address, transport, Expected(Role.WORKER, worker.worker_id))


class RenewedChannel:
    """A channel to the manager, replaced by another one when this process has a new certificate.

    Calls end on their first channel. Only `renew` resolves the names of several addresses: before it, gRPC resolves the
    first of them.
    """

    def __init__(self, address: str, transport: Transport) -> None:
        self._address = address
        self._transport = transport
        self._edition = transport.edition
        self._known = address.partition(",")[0]  # the address, as resolved last
        self._channel = self._opened()
        self._former: set[asyncio.Task[None]] = set()

    def current(self) -> grpc.aio.Channel:
        """The channel for a new call."""
        if self._edition != (edition := self._transport.edition):
            self._edition = edition
            self._replace()
        return self._channel

    async def renew(self) -> None:
        """Resolves the names in a thread, however long that takes, and opens another channel for new calls."""
        self._known = await asyncio.to_thread(_target, self._address)
        self._replace()

    def _replace(self) -> None:
        task = asyncio.create_task(self._channel.close(CALL_S_MAX), name="former channel")
        self._former.add(task)
        task.add_done_callback(self._former.discard)
        self._channel = self._opened()

    def _opened(self) -> grpc.aio.Channel:
        return self._transport.channel(self._known, THE_MANAGER, MANAGER_OPTIONS)

    async def close(self) -> None:
        """Ends all calls."""
        for task in self._former:
            task.cancel()
        await asyncio.gather(*self._former, return_exceptions=True)
        await self._channel.close(None)


def _admitted(reply: T, doing: str) -> T:
    """Checks the reply at the gate. Raises RemoteProtocolError if it fails."""
    if isinstance(reply, Message):
        checked(reply, doing)
    return reply


async def call(doing: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Awaits `attempt()`, which must carry a deadline (timeout=...). Failures become RhinoErrors that name `doing`."""
    try:
        return _admitted(await attempt(), doing)
    except grpc.RpcError as error:
        raise error_of(error, doing) from error


def call_sync(doing: str, attempt: Callable[[], T], *, retry_for_s: float = 0.0) -> T:
    """Like `call`, but blocking.

    With `retry_for_s` > 0, UNAVAILABLE is retried with backoff for this time: use this for idempotent calls only.
    """

    def once() -> T:
        try:
            return _admitted(attempt(), doing)
        except grpc.RpcError as error:
            raise error_of(error, doing) from error

    return calls_sync(retry_for_s)(once)
